"""Activation functions and their gradients, by name, with the operations each takes on one element.

Where a function has branches, compares are counted and then the branch that computes most, since which one an element
takes is data. Formulas are those of aten/src/ATen/native/cpu/Activation.cpp.
"""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Name -> (FLOPs, transcendentals) an element forward, then backward.
activations: Mapping[str, tuple[int, int, int, int]] = {
    "celu": (3, 1, 5, 1),  # as elu
    "elu": (3, 1, 5, 1),  # a > 0, expm1(a·c)·α; a ≤ 0, dy·c·α·exp(a·c)
    "elu_of_result": (3, 1, 4, 0),  # dy·c·(y + α)
    "glu": (2, 2, 6, 2),  # a·1/(1 + e^-b), an element of the result; s, dy·s, (1 - s)·s·dy·a
    "hardshrink": (2, 0, 2, 0),  # -λ ≤ a ≤ λ
    "hardsigmoid": (4, 0, 3, 0),  # min(max(a + 3, 0), 6)·⅙; -3 < a < 3, dy·⅙
    "hardswish": (5, 0, 5, 0),  # a times that; two compares, dy·(a·⅓ + ½)
    "hardtanh": (2, 0, 2, 0),
    "leaky_relu": (2, 0, 2, 0),  # a > 0, a·c; the same on dy
    "log_sigmoid": (3, 2, 5, 1),  # min(0, a) - log1p(exp(-|a|)); a < 0, (d - s·z/(1 + z))·dy with z kept
    "log_sigmoid_unkept": (3, 2, 6, 2),  # z = exp(-|a|) made again
    "mish": (1, 3, 7, 5),  # a·tanh(log1p(e^a)); s = 1/(1 + e^-a), t = tanh(log1p(e^a)), dy·(t + a·s·(1 - t·t))
    "prelu": (2, 0, 3, 0),  # a > 0, w·a; a > 0, w·dy, a·dy
    "rrelu": (2, 0, 1, 0),  # a > 0, a·noise; dy·noise
    "softplus": (2, 3, 4, 2),  # a·β, against the threshold, log1p(exp)/β; a·β, compare, dy·z/(z + 1)
    "softshrink": (3, 0, 2, 0),  # a > λ, a < -λ, a ∓ λ; two compares
    "threshold": (1, 0, 1, 0),
    "add_relu": (2, 0, 1, 0),
}


@rule
def activation(name: str, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """`name` on each of `elements` elements.

    Raises:
        KeyError: `name` is not in `activations`.

    >>> activation("hardswish", 10)[0].work.flops_full, activation("mish", 10)[0].work.transcendentals
    (50, 30)
    """
    flops, transcendentals, _, _ = activations[name]
    work = Work.of_flops(
        flops * elements,
        transcendentals=transcendentals * elements,
        bytes_read=element_bytes * elements,
        bytes_written=element_bytes * elements,
    )
    return (Piece(name, "pointwise", work, (("elements", elements),)),)


@rule
def activation_backward(name: str, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Its gradient from that of the result and the kept argument.

    >>> activation_backward("hardswish", 10)[0].work.flops_full
    50
    """
    _, _, flops, transcendentals = activations[name]
    work = Work.of_flops(
        flops * elements,
        transcendentals=transcendentals * elements,
        bytes_read=2 * element_bytes * elements,
        bytes_written=element_bytes * elements,
    )
    return (Piece(f"{name}_backward", "pointwise", work, (("elements", elements),), "input"),)
