"""Prices of what works element by element, in place or not, on one tensor or a list."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices
from torchledger.tracer.pricing.stored import is_sparse, num_stored
from torchledger.tracer.pricing.untold import untold
from torchledger.tracer.signature import TensorMeta

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


@price_of("pow")
def power(seen: Seen) -> tuple[Piece, ...]:
    """a^c; the exponents that torch has a shorter way for are counted as that way."""
    shorter = {2: "square", 3: "cube", -2: "inverse_square", 0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}
    exponent = seen.arguments.get("exponent")
    if exponent == 1:
        return ops.copy(seen.num_results)
    name = shorter.get(exponent, "pow") if isinstance(exponent, (int, float)) else "pow"
    return on_each(seen, name, seen.num_results)


@price_of("gelu")
def gelu(seen: Seen) -> tuple[Piece, ...]:
    """GELU, exact or by tanh."""
    return ops.pointwise("gelu_tanh" if seen.arguments["approximate"] == "tanh" else "gelu", seen.num_results)


@price_of("gelu_backward")
def gelu_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.pointwise_backward("gelu_tanh" if seen.arguments["approximate"] == "tanh" else "gelu", seen.num_results)


@price_of("native_dropout", "_fused_dropout")
def dropout(seen: Seen) -> tuple[Piece, ...]:
    """Dropout as one kernel."""
    return ops.dropout(seen.num_results)


@price_of("native_dropout_backward", "_masked_scale")
def dropout_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.dropout_backward(seen.num_results)


@price_of("_foreach_pow")
def foreach_power(seen: Seen) -> tuple[Piece, ...]:
    """A power of every element of a list of tensors."""
    return on_each(seen, "pow", num_elements(seen))


def elementwise(name: str) -> Price:
    """A row of `ops.per_element` (or `ops.elementary`) on every element of the result."""

    def price(seen: Seen) -> tuple[Piece, ...]:
        return on_each(seen, _scaled(seen, name), num_elements(seen))

    return price


def on_each(seen: Seen, name: str, elements: int) -> tuple[Piece, ...]:
    """The row on so many elements; of complex numbers that of `ops.complex_elementary`, unknown where it has none.

    Of a sparse tensor it works on the values that are stored.
    """
    if is_sparse(seen):
        stored = num_stored(seen)
        if stored is None:
            return untold(seen, "how many values a sparse tensor stores is data")
        elements = stored
    if is_complex(seen):
        row = _complex_row(seen, name)
        if row not in ops.complex_elementary:
            return untold(seen, f"{seen.op} has no count for complex numbers")
        return ops.elementwise(row, elements, complex_numbers=True)
    return ops.pointwise(name, elements) if name in ops.per_element else ops.elementwise(name, elements)


def is_complex(seen: Seen) -> bool:
    """Whether complex numbers are among the call's tensors."""
    found = [*seen.results, *(value for value in seen.arguments.values() if isinstance(value, TensorMeta))]
    for value in seen.arguments.values():
        if isinstance(value, tuple):
            found.extend(item for item in value[1:] if isinstance(item, TensorMeta))
    return any(meta.dtype.is_complex for meta in found)


def num_elements(seen: Seen) -> int:
    """Elements of the result, of all tensors of the list where the call takes a list."""
    if not seen.op.startswith("_foreach"):
        return seen.num_results
    lists = (value for value in seen.arguments.values() if isinstance(value, tuple))
    metas = next(found for value in lists if (found := [item for item in value[1:] if isinstance(item, TensorMeta)]))
    return sum(meta.num_elements for meta in metas)


def _scaled(seen: Seen, name: str) -> str:
    return "add_scaled" if name in {"add", "sub"} and seen.arguments.get("alpha", 1) != 1 else name


def _complex_row(seen: Seen, name: str) -> str:
    """Times or over a real number is less than times or over a complex one."""
    if name in {"mul", "div"} and not _is_complex(seen.arguments.get("other")):
        return "scale" if name == "mul" else "divide_by_real"
    return "scale" if name == "mul" and not _is_complex(seen.arguments.get("self")) else name


def _is_complex(value: object) -> bool:
    if isinstance(value, tuple):
        return any(_is_complex(item) for item in value[1:])
    return isinstance(value, complex) or (isinstance(value, TensorMeta) and value.dtype.is_complex)


def _elementwise_backward(name: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        if is_complex(seen):
            return on_each(seen, seen.op, seen.num_results)
        return ops.pointwise_backward(name, seen.num_results)

    return price


for _op, _row in _POINTWISE.items():
    prices[_op] = prices[f"{_op}_"] = elementwise(_row)
    prices[f"_foreach_{_op}"] = prices[f"_foreach_{_op}_"] = prices[_op]
for _op, _row in _BACKWARD.items():
    prices[_op] = _elementwise_backward(_row)
for _op in ("pow", "gelu"):
    prices[f"{_op}_"] = prices[_op]
prices["_foreach_pow_"] = prices["_foreach_pow"]
