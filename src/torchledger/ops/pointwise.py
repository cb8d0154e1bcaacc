"""Operations element by element, by name, with the operations each of them takes on one element.

One add, multiply or compare is 1 FLOP; exp, log, erf, tanh, sqrt and division are counted as transcendentals and
nowhere else; a change of sign is free. The numbers follow the formulas that ATen evaluates
(aten/src/ATen/native/cpu/Activation.cpp, and derivatives.yaml for the backward column).
"""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@dataclass(frozen=True, slots=True)
class PerElement:
    """Operations on one element.

    Attributes:
        flops: adds, multiplies and compares, forward.
        transcendentals: exp, log, erf, tanh, sqrt, divisions, forward.
        backward_flops: the same for all gradients of the operation together.
        backward_transcendentals: the same for all gradients.
        operands: tensors read, forward.
        backward_operands: tensors read in the backward pass, the incoming gradient among them.
    """

    flops: int
    transcendentals: int
    backward_flops: int
    backward_transcendentals: int
    operands: int = 1
    backward_operands: int = 2


#: Name -> operations an element. The comment spells the formula that was counted (forward; backward).
per_element: dict[str, PerElement] = {
    "add": PerElement(1, 0, 0, 0, 2, 1),  # a + b; dy goes to both
    "sub": PerElement(1, 0, 0, 0, 2, 1),
    "mul": PerElement(1, 0, 2, 0, 2, 3),  # a·b; dy·b, dy·a
    "div": PerElement(0, 1, 1, 2, 2, 3),  # a/b; dy/b, -(dy/b)·(a/b)
    "scale": PerElement(1, 0, 1, 0, 1, 1),  # a·c, c a number; dy·c
    "add_scaled": PerElement(2, 0, 1, 0, 2, 1),  # a + c·b; dy, dy·c
    "add_number": PerElement(1, 0, 0, 0, 1, 1),  # a + c; dy
    "neg": PerElement(0, 0, 0, 0, 1, 1),
    "abs": PerElement(1, 0, 2, 0),  # compare; compare, mul
    "square": PerElement(1, 0, 2, 0),  # a·a; 2·a·dy
    "cube": PerElement(2, 0, 4, 0),  # a·a·a; 3·a·a·dy
    "inverse_square": PerElement(1, 1, 4, 1),  # 1/(a·a); -2/(a·a·a)·dy
    "sqrt": PerElement(0, 1, 1, 1),  # √a; dy/(2·√a)
    "rsqrt": PerElement(0, 1, 4, 0),  # 1/√a; -½·dy·y·y·y
    "reciprocal": PerElement(0, 1, 2, 0),  # 1/a; -dy·y·y
    "exp": PerElement(0, 1, 1, 0),  # e^a; dy·y
    "log": PerElement(0, 1, 0, 1),  # ln a; dy/a
    "sin": PerElement(0, 1, 1, 1),  # sin a; dy·cos a
    "cos": PerElement(0, 1, 1, 1),
    "erf": PerElement(0, 1, 3, 1),  # erf a; 2/√π·exp(-a·a)·dy
    "tanh": PerElement(0, 1, 3, 0),  # tanh a; dy·(1 - y·y)
    "sigmoid": PerElement(1, 2, 3, 0),  # 1/(1 + e^-a); dy·y·(1 - y)
    "silu": PerElement(1, 2, 6, 2),  # a/(1 + e^-a); s = 1/(1 + e^-a), dy·s·(1 + a·(1 - s))
    "gelu": PerElement(4, 1, 9, 2),  # ½·a·(1 + erf(a/√2)); Φ 3 and erf, φ 3 and exp, then dy·(Φ + a·φ) 3
    "gelu_tanh": PerElement(8, 1, 17, 1),  # ½·a·(1 + tanh(β·(a + κ·a³))); the product rule on it, a² shared
    "relu": PerElement(1, 0, 1, 0),  # max(a, 0); compare
    "relu_squared": PerElement(2, 0, 3, 0),  # max(a, 0)²; 2·max(a, 0)·dy
    "soft_cap": PerElement(2, 1, 3, 0),  # c·tanh(a/c), 1/c a number; dy·(1 - t·t)
    "clamp": PerElement(2, 0, 2, 0),  # two compares; two compares
    "maximum": PerElement(1, 0, 2, 0, 2, 3),
    "minimum": PerElement(1, 0, 2, 0, 2, 3),
    "compare": PerElement(1, 0, 0, 0, 2, 0),
    "where": PerElement(0, 0, 0, 0, 3, 2),  # a choice is not arithmetic
    "masked_fill": PerElement(0, 0, 0, 0, 2, 2),
    "addcmul": PerElement(3, 0, 3, 0, 3, 3),  # a + c·b·d; dy, c·dy·d, c·dy·b with c·dy shared
    "addcdiv": PerElement(2, 1, 3, 2, 3, 3),  # a + c·b/d; dy, c·dy/d, -(c·dy/d)·(b/d)
    "lerp": PerElement(3, 0, 2, 0, 2, 1),  # a + w·(b - a), w a number; (1 - w)·dy, w·dy
    "pow": PerElement(0, 1, 2, 1),  # a^c by log and exp; c·a^(c-1)·dy
}


@rule
def pointwise(
    name: str,
    elements: Amount,
    *,
    element_bytes: Amount = 4,
    output_element_bytes: Amount = None,
) -> tuple[Piece, ...]:
    """`name` on each of `elements` elements, every operand as large as the result.

    Args:
        name: a key of `per_element`.
        elements: elements of the result.
        element_bytes: bytes of an element of the operands.
        output_element_bytes: bytes of an element of the result, where it differs.

    Raises:
        KeyError: `name` is not in `per_element`.

    >>> pointwise("gelu", 10)[0].work
    Work(flops_full=40, flops_exact=40, flops_executed=40, transcendentals=10, bytes_read=40, bytes_written=40)
    """
    one = per_element[name]
    written = element_bytes if output_element_bytes is None else output_element_bytes
    work = Work.of_flops(
        one.flops * elements,
        transcendentals=one.transcendentals * elements,
        bytes_read=one.operands * element_bytes * elements,
        bytes_written=written * elements,
    )
    return (Piece(name, "pointwise", work, (("elements", elements),)),)


@rule
def pointwise_backward(
    name: str, elements: Amount, *, element_bytes: Amount = 4, num_gradients: Amount = 1
) -> tuple[Piece, ...]:
    """All gradients of `pointwise(name)`; `num_gradients` tensors are written (2 for `mul` of two activations).

    >>> pointwise_backward("silu", 10)[0].work.flops_full  # 6·10
    60
    """
    one = per_element[name]
    work = Work.of_flops(
        one.backward_flops * elements,
        transcendentals=one.backward_transcendentals * elements,
        bytes_read=one.backward_operands * element_bytes * elements,
        bytes_written=num_gradients * element_bytes * elements,
    )
    return (Piece(f"{name}_backward", "pointwise", work, (("elements", elements),), "input"),)


@rule
def rotary(tokens: Amount, heads: Amount, rotary_size: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Rotation x·cos + rotate_half(x)·sin of the first `rotary_size` dims of each head: 3 FLOPs an element.

    RoFormer, arXiv:2104.09864, equation 34; the half turn is a change of sign. The gradient is the inverse rotation and
    costs the same.

    >>> rotary(tokens=2, heads=3, rotary_size=4)[0].work.flops_full  # 3·2·3·4
    72
    """
    elements = tokens * heads * rotary_size
    work = Work.of_flops(
        3 * elements,
        bytes_read=element_bytes * (elements + 2 * tokens * rotary_size),
        bytes_written=element_bytes * elements,
    )
    return (Piece("rotary", "pointwise", work, (("tokens", tokens), ("heads", heads), ("size", rotary_size))),)


@rule
def dropout(elements: Amount, *, element_bytes: Amount = 4, mask_element_bytes: Amount = 1) -> tuple[Piece, ...]:
    """A random mask (one compare an element) and x·mask·1/(1 - p) (Srivastava et al., JMLR 15, 2014).

    >>> [(piece.kind, piece.work.flops_full) for piece in dropout(10)]
    [('random', 10), ('pointwise', 20)]
    """
    mask = Work.of_flops(elements, bytes_written=mask_element_bytes * elements)
    apply = Work.of_flops(
        2 * elements,
        bytes_read=(element_bytes + mask_element_bytes) * elements,
        bytes_written=element_bytes * elements,
    )
    shape = (("elements", elements),)
    return Piece("dropout_mask", "random", mask, shape), Piece("dropout", "pointwise", apply, shape)


@rule
def dropout_backward(
    elements: Amount, *, element_bytes: Amount = 4, mask_element_bytes: Amount = 1
) -> tuple[Piece, ...]:
    """dy·mask·1/(1 - p).

    >>> dropout_backward(10)[0].work.flops_full
    20
    """
    work = Work.of_flops(
        2 * elements,
        bytes_read=(element_bytes + mask_element_bytes) * elements,
        bytes_written=element_bytes * elements,
    )
    return (Piece("dropout_backward", "pointwise", work, (("elements", elements),), "input"),)


@rule
def copy(
    elements: Amount, *, element_bytes: Amount = 4, output_element_bytes: Amount = None, op: str = "copy"
) -> tuple[Piece, ...]:
    """A copy or a cast: no FLOPs, every element read once and written once.

    >>> copy(10, element_bytes=4, output_element_bytes=2, op="cast")[0].work
    Work(bytes_read=40, bytes_written=20)
    """
    written = element_bytes if output_element_bytes is None else output_element_bytes
    work = Work(bytes_read=element_bytes * elements, bytes_written=written * elements)
    return (Piece(op, "copy", work, (("elements", elements),)),)


@rule
def fill(elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Every element written once with a number.

    >>> fill(10)[0].work
    Work(bytes_written=40)
    """
    return (Piece("fill", "copy", Work(bytes_written=element_bytes * elements), (("elements", elements),)),)
