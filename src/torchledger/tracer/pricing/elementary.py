"""Prices of functions of one element, and of activations with their gradients."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.ops.activation import activations
from torchledger.tracer.pricing.elements import elementwise, num_elements, on_each
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices
from torchledger.tracer.pricing.untold import untold

#: torch's name -> the row that counts it, where they differ.
_OTHER_NAMES = {
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift", "__lshift__", "__rshift__"), "bitwise"),
    **dict.fromkeys(("__ilshift__", "__irshift__"), "bitwise"),
    "_conj_physical": "conj_physical",
    "special_i0": "i0",
}
#: Activation -> torch's backward operations of it.
_ACTIVATION_GRADIENTS = {
    "elu": "elu_backward",
    "glu": "glu_backward",
    "hardshrink": "hardshrink_backward",
    "hardsigmoid": "hardsigmoid_backward",
    "hardswish": "hardswish_backward",
    "hardtanh": "hardtanh_backward",
    "leaky_relu": "leaky_relu_backward",
    "mish": "mish_backward",
    "prelu": "_prelu_kernel_backward",
    "softplus": "softplus_backward",
    "softshrink": "softshrink_backward",
}
_ACTIVATIONS = (
    "celu", "elu", "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "leaky_relu", "mish", "softplus", "softshrink",
    "threshold",
)  # fmt: skip


@price_of("conj_physical", "conj_physical_", "_conj_physical", "complex", "frexp")
def rearranged(seen: Seen) -> tuple[Piece, ...]:
    """Signs, parts and bits put elsewhere: no arithmetic."""
    return ops.copy(seen.num_results, op=seen.op.strip("_"))


@price_of("polar")
def from_polar(seen: Seen) -> tuple[Piece, ...]:
    """r·cos φ + i·r·sin φ."""
    return ops.elementwise("polar", seen.num_results)


@price_of("logit", "logit_")
def logit(seen: Seen) -> tuple[Piece, ...]:
    """The inverse of the sigmoid, brought between ε and 1 - ε where ε is given."""
    return ops.elementwise("logit" if seen.arguments.get("eps") is None else "logit_clamped", seen.num_results)


@price_of("logit_backward")
def logit_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.elementwise("logit_backward", seen.num_results)


@price_of("mvlgamma", "mvlgamma_")
def multivariate_log_gamma(seen: Seen) -> tuple[Piece, ...]:
    """Σ over p of ln Γ(a - i/2), and a constant: a sum, p differences, p logarithms of Γ."""
    (piece,) = ops.elementwise("lgamma", seen.num_results * seen.arguments["p"])
    (sums,) = ops.elementwise("rad2deg", seen.num_results * 2 * seen.arguments["p"])
    work = piece.work + sums.work
    return (Piece("mvlgamma", "pointwise", work, (("elements", seen.num_results),)),)


@price_of("_prelu_kernel")
def prelu(seen: Seen) -> tuple[Piece, ...]:
    """PReLU, its slope a tensor."""
    return ops.activation("prelu", seen.num_results)


@price_of("glu", "log_sigmoid_forward")
def gated(seen: Seen) -> tuple[Piece, ...]:
    """A gated half, and log-sigmoid."""
    return ops.activation("glu" if seen.op == "glu" else "log_sigmoid", seen.num_results)


@price_of("glu_backward")
def glu_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradients of both halves, counted by element of the result."""
    return ops.activation_backward("glu", seen.tensor("grad_output").num_elements)


@price_of("log_sigmoid_backward")
def log_sigmoid_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient; a CPU keeps exp(-|a|) for it, CUDA makes it again."""
    kept = seen.tensor("buffer").num_elements > 0
    return ops.activation_backward("log_sigmoid" if kept else "log_sigmoid_unkept", seen.num_results)


@price_of("elu_backward")
def elu_backward(seen: Seen) -> tuple[Piece, ...]:
    """Of the argument, or where it ran in place of the result."""
    return ops.activation_backward("elu_of_result" if seen.arguments["is_result"] else "elu", seen.num_results)


@price_of("rrelu_with_noise", "rrelu_with_noise_", "rrelu_with_noise_functional")
def random_relu(seen: Seen) -> tuple[Piece, ...]:
    """A slope drawn for each element; evaluation takes their mean."""
    return ops.activation("rrelu", seen.num_results)


@price_of("rrelu_with_noise_backward")
def random_relu_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient: times the slopes that were drawn."""
    return ops.activation_backward("rrelu" if seen.arguments["training"] else "leaky_relu", seen.num_results)


@price_of("_add_relu", "_add_relu_")
def add_relu(seen: Seen) -> tuple[Piece, ...]:
    """A sum and its positive part."""
    pieces = ops.activation("add_relu", seen.num_results)
    return pieces if seen.arguments.get("alpha", 1) == 1 else pieces + ops.pointwise("scale", seen.num_results)


@price_of("glu_jvp", "glu_backward_jvp")
def forward_mode(seen: Seen) -> tuple[Piece, ...]:
    """Derivatives in forward mode, which no training step takes."""
    return untold(seen, f"{seen.op} is a derivative in forward mode: it has no count")


def _activation(name: str) -> Price:
    return lambda seen: ops.activation(name, seen.num_results)


def _activation_backward(name: str) -> Price:
    return lambda seen: ops.activation_backward(name, seen.num_results)


def _function(name: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        return on_each(seen, name, num_elements(seen))

    return price


for _name in ops.elementary:
    for _op in (_name, f"{_name}_", f"_foreach_{_name}", f"_foreach_{_name}_"):
        prices.setdefault(_op, _function(_name))
for _op, _name in _OTHER_NAMES.items():
    prices.setdefault(_op, elementwise(_name))
    prices.setdefault(f"{_op}_", elementwise(_name))
for _name in _ACTIVATIONS:
    prices[_name] = prices[f"{_name}_"] = _activation(_name)
for _name, _op in _ACTIVATION_GRADIENTS.items():
    prices.setdefault(_op, _activation_backward(_name))
assert set(_ACTIVATION_GRADIENTS) <= set(activations)  # a row for each
