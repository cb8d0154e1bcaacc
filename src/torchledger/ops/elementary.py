"""Functions of one element that autograd differentiates by other operations: library functions, rounding, tests.

As everywhere in the house one add, multiply or compare is 1 FLOP, and one call of a library function (exp, log, a root,
an inverse sine, a Bessel function; a division too) is one transcendental and nothing else. Rounding is 1 FLOP.
Formulas are those of aten/src/ATen/native (cpu/UnaryOpsKernel.cpp, cpu/BinaryOpsKernel.cpp, Math.h).
"""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Functions that a mathematics library has a name for: one call an element.
_LIBRARY = (
    "acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cosh", "digamma", "erfc", "erfinv", "exp2", "expm1",
    "i0", "igamma", "igammac", "lgamma", "log10", "log1p", "log2", "polygamma", "sinh", "special_airy_ai",
    "special_bessel_j0", "special_bessel_j1", "special_bessel_y0", "special_bessel_y1", "special_erfcx", "special_i0e",
    "special_i1", "special_i1e", "special_log_ndtr", "special_modified_bessel_i0", "special_modified_bessel_i1",
    "special_modified_bessel_k0", "special_modified_bessel_k1", "special_ndtri", "special_scaled_modified_bessel_k0",
    "special_scaled_modified_bessel_k1", "special_spherical_bessel_j0", "special_zeta", "tan",
)  # fmt: skip

#: Name -> (FLOPs, transcendentals) an element; the comment spells the formula that was counted.
elementary: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_LIBRARY, (0, 1)),
    **dict.fromkeys(("ceil", "floor", "round", "trunc"), (1, 0)),
    "frac": (2, 0),  # a - trunc(a)
    "fmod": (0, 1),  # as `remainder`: one division
    "sign": (3, 0),  # (0 < a) - (a < 0)
    "sgn": (3, 0),
    "signbit": (1, 0),  # a < 0
    "copysign": (0, 0),  # a change of sign
    "nextafter": (1, 0),  # one step of the last bit
    "heaviside": (2, 0),  # a == 0, a < 0
    "isposinf": (1, 0),
    "isneginf": (1, 0),
    "nan_to_num": (3, 0),  # nan, inf and -inf are looked for
    "fmax": (1, 0),
    "fmin": (1, 0),
    "angle": (1, 0),  # of a real number: a < 0
    "deg2rad": (1, 0),
    "rad2deg": (1, 0),
    "hypot": (3, 1),  # √(a·a + b·b)
    "ldexp": (1, 1),  # a·2^b
    "frexp": (0, 0),  # bits taken apart
    "logaddexp": (4, 2),  # max(a, b) + log1p(exp(-|a - b|))
    "logaddexp2": (4, 2),
    "xlogy": (2, 1),  # a == 0, a·log b
    "special_xlog1py": (2, 1),
    "special_entr": (2, 1),  # a > 0, -a·log a
    "sinc": (2, 2),  # a == 0, sin(π·a)/(π·a)
    "logit": (1, 2),  # log(a/(1 - a))
    "logit_clamped": (3, 2),  # a brought between ε and 1 - ε first
    "logit_backward": (4, 1),  # 0 ≤ a ≤ 1 is two compares; dy/(a·(1 - a))
    "polar": (2, 2),  # r·cos φ, r·sin φ
    "bitwise": (1, 0),
}

#: The same for complex numbers: an add is 2, a multiply 6 (4 multiplies, 2 adds). |z| = √(a² + b²) is 3 and a root.
complex_elementary: Mapping[str, tuple[int, int]] = {
    "add": (2, 0),
    "sub": (2, 0),
    "scale": (2, 0),  # times a real number
    "add_scaled": (4, 0),  # times a real number, and an add
    "mul": (6, 0),
    "square": (6, 0),
    "div": (9, 2),  # z·w̄/|w|²: 6, |w|² 3, two divisions
    "divide_by_real": (0, 2),
    "reciprocal": (3, 2),  # z̄/|z|²
    "neg": (0, 0),
    "conj_physical": (0, 0),
    "where": (0, 0),
    "masked_fill": (0, 0),
    "compare": (2, 0),  # both parts
    "abs": (3, 1),
    "angle": (0, 1),  # atan2
    "sgn": (3, 3),  # z/|z|
    "exp": (2, 3),  # e^a·cos b, e^a·sin b
    "expm1": (3, 3),
    "exp2": (4, 3),  # exp(z·ln 2)
    "log": (3, 3),  # ln |z| and atan2
    "log2": (5, 3),  # times 1/ln 2
    "log10": (5, 3),
    "log1p": (4, 3),
    "sqrt": (7, 3),  # √((|z| ± a)·½)
    "rsqrt": (10, 5),  # its reciprocal
    "sin": (2, 4),  # sin a·cosh b, cos a·sinh b
    "cos": (2, 4),
    "sinh": (2, 4),
    "cosh": (2, 4),
    "tan": (3, 6),  # (sin 2a + i·sinh 2b)/(cos 2a + cosh 2b)
    "tanh": (3, 6),
    "acos": (19, 6),  # -i·log(z + i·√(1 - z²))
    "asin": (19, 6),
    "asinh": (19, 6),  # log(z + √(z² + 1))
    "acosh": (27, 9),  # log(z + √(z + 1)·√(z - 1))
    "atan": (12, 6),  # i/2·(log(1 - i·z) - log(1 + i·z))
    "atanh": (12, 6),
    "sinc": (15, 6),  # z == 0, sin(π·z)/(π·z)
    "ldexp": (2, 1),  # z·2^b
    "logaddexp": (9, 9),  # log(e^z + e^w)
    "sigmoid": (6, 5),  # 1/(1 + e^-z)
    "silu": (12, 5),  # z times that
    "pow": (11, 6),  # exp(w·log z)
    "addcmul": (10, 0),  # a + c·b·d, c real
    "addcdiv": (13, 2),
    "lerp": (6, 0),  # a + w·(b - a), w real
    "tanh_backward": (14, 0),  # dy·conj(1 - y²)
    "sigmoid_backward": (14, 0),  # dy·conj(y·(1 - y))
}


@rule
def elementwise(
    name: str, elements: Amount, *, operands: int = 1, element_bytes: Amount = 4, complex_numbers: bool = False
) -> tuple[Piece, ...]:
    """`name` on each of `elements` elements.

    Args:
        name: a key of `elementary`, for complex numbers of `complex_elementary`.
        elements: elements of the result.
        operands: tensors read, each as large as the result.
        element_bytes: bytes of an element of operands and result.
        complex_numbers: whether they are complex.

    Raises:
        KeyError: there is no such name.

    >>> elementwise("sign", 10)[0].work.flops_full, elementwise("log1p", 10)[0].work.transcendentals
    (30, 10)
    >>> elementwise("mul", 10, operands=2, element_bytes=8, complex_numbers=True)[0].work.flops_full  # 6·10
    60
    """
    flops, transcendentals = (complex_elementary if complex_numbers else elementary)[name]
    work = Work.of_flops(
        flops * elements,
        transcendentals=transcendentals * elements,
        bytes_read=operands * element_bytes * elements,
        bytes_written=element_bytes * elements,
    )
    return (Piece(name, "pointwise", work, (("elements", elements),)),)
