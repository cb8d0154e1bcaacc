"""Prices of what works element by element, in place or not, on one tensor or a list; of copies and random numbers."""

from __future__ import annotations

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices

#: torch's operation -> the row of `ops.per_element` that counts it.
_POINTWISE = {
    "add": "add",
    "sub": "sub",
    "rsub": "sub",
    "mul": "mul",
    "div": "div",
    "floor_divide": "div",
    "remainder": "div",
    "neg": "neg",
    "abs": "abs",
    "square": "square",
    "sqrt": "sqrt",
    "rsqrt": "rsqrt",
    "reciprocal": "reciprocal",
    "exp": "exp",
    "log": "log",
    "sin": "sin",
    "cos": "cos",
    "erf": "erf",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "relu": "relu",
    "clamp": "clamp",
    "clamp_min": "maximum",
    "clamp_max": "minimum",
    "maximum": "maximum",
    "minimum": "minimum",
    "where": "where",
    "masked_fill": "masked_fill",
    "addcmul": "addcmul",
    "addcdiv": "addcdiv",
    "lerp": "lerp",
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isinf"), "compare"),
    **dict.fromkeys(("logical_and", "logical_or", "logical_not", "logical_xor"), "compare"),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_not", "bitwise_xor"), "compare"),
}
#: Backward operation -> the same.
_BACKWARD = {
    "silu_backward": "silu",
    "threshold_backward": "relu",
    "tanh_backward": "tanh",
    "sigmoid_backward": "sigmoid",
}
_COPIES = (
    "clone", "_to_copy", "copy_", "cat", "stack", "repeat", "repeat_interleave", "roll", "flip", "triu", "tril",
    "triu_", "tril_", "constant_pad_nd", "slice_backward", "select_backward", "diagonal", "contiguous",
    "_foreach_copy_", "select_scatter", "slice_scatter", "as_strided_scatter",
)  # fmt: skip
_FILLS = (
    "fill_", "fill", "zero_", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "new_zeros", "new_ones",
    "new_full", "arange", "eye", "scalar_tensor", "_foreach_zero_", "linspace", "one_hot",
)  # fmt: skip
_RANDOM = (
    "normal_", "uniform_", "bernoulli_", "bernoulli", "rand", "randn", "randint", "rand_like", "randn_like",
    "randperm", "normal", "multinomial", "exponential_", "random_",
)  # fmt: skip


@price_of("pow")
def power(seen: Seen) -> tuple[Piece, ...]:
    """a^c; the exponents that torch has a shorter way for are counted as that way."""
    shorter = {2: "square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    exponent = seen.arguments.get("exponent")
    if exponent == 1:
        return ops.copy(seen.num_results)
    name = shorter.get(exponent, "pow") if isinstance(exponent, (int, float)) else "pow"
    return ops.pointwise(name, seen.num_results)


@price_of("gelu")
def gelu(seen: Seen) -> tuple[Piece, ...]:
    """GELU, exact or by tanh."""
    return ops.pointwise("gelu_tanh" if seen.arguments["approximate"] == "tanh" else "gelu", seen.num_results)


@price_of("gelu_backward")
def gelu_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.pointwise_backward("gelu_tanh" if seen.arguments["approximate"] == "tanh" else "gelu", seen.num_results)


@price_of("native_dropout")
def dropout(seen: Seen) -> tuple[Piece, ...]:
    """Dropout as one kernel."""
    return ops.dropout(seen.num_results)


@price_of("native_dropout_backward")
def dropout_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.dropout_backward(seen.num_results)


@price_of("_fused_adamw_", "_fused_adam_")
def fused_adamw(seen: Seen) -> tuple[Piece, ...]:
    """One AdamW step of a list of parameters as one kernel."""
    elements = sum(meta.num_elements for meta in seen.tensors("self"))
    return ops.adamw(elements, weight_decay=bool(seen.arguments["weight_decay"]))


@price_of("_fused_sgd_")
def fused_sgd(seen: Seen) -> tuple[Piece, ...]:
    """One SGD step of a list of parameters as one kernel."""
    elements = sum(meta.num_elements for meta in seen.tensors("self"))
    decays, moves = bool(seen.arguments["weight_decay"]), bool(seen.arguments["momentum"])
    return ops.sgd(elements, momentum=moves, weight_decay=decays)


@price_of("_foreach_norm")
def foreach_norm(seen: Seen) -> tuple[Piece, ...]:
    """Norm of every tensor of a list."""
    metas = seen.tensors("self")
    return ops.reduction("norm", len(metas), sum(meta.num_elements for meta in metas) / len(metas))


@price_of("_foreach_pow")
def foreach_power(seen: Seen) -> tuple[Piece, ...]:
    """A power of every element of a list of tensors."""
    return ops.pointwise("pow", _list_elements(seen))


@price_of(*_COPIES)
def copied(seen: Seen) -> tuple[Piece, ...]:
    """A copy, a cast, a rearrangement."""
    name = "cast" if seen.op == "_to_copy" else "copy"
    return ops.copy(_list_elements(seen) if seen.op.startswith("_foreach") else seen.num_results, op=name)


@price_of(*_FILLS)
def filled(seen: Seen) -> tuple[Piece, ...]:
    """Every element written with a number."""
    return ops.fill(_list_elements(seen) if seen.op.startswith("_foreach") else seen.num_results)


@price_of(*_RANDOM)
def random(seen: Seen) -> tuple[Piece, ...]:
    """Random numbers: how many operations one takes is the generator's secret, so only the bytes are told."""
    return (Piece(seen.op.strip("_"), "random", Work(), (("elements", seen.num_results),)),)


def _elementwise(name: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        row = "add_scaled" if name in {"add", "sub"} and seen.arguments.get("alpha", 1) != 1 else name
        return ops.pointwise(row, seen.num_results)

    return price


def _each_elementwise(name: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        row = "add_scaled" if name in {"add", "sub"} and seen.arguments.get("alpha", 1) != 1 else name
        return ops.pointwise(row, _list_elements(seen))

    return price


def _elementwise_backward(name: str) -> Price:
    return lambda seen: ops.pointwise_backward(name, seen.num_results)


def _list_elements(seen: Seen) -> int:
    return sum(meta.num_elements for meta in seen.tensors("self"))


for _op, _row in _POINTWISE.items():
    prices[_op] = prices[f"{_op}_"] = _elementwise(_row)
    prices[f"_foreach_{_op}"] = prices[f"_foreach_{_op}_"] = _each_elementwise(_row)
for _op, _row in _BACKWARD.items():
    prices[_op] = _elementwise_backward(_row)
for _op in ("pow", "gelu"):
    prices[f"{_op}_"] = prices[_op]
prices["_foreach_pow_"] = prices["_foreach_pow"]
