"""Numbers to bit patterns and back, exactly: all arithmetic is on integers, and every value is rounded once."""

import math
from dataclasses import dataclass
from typing import Literal, Protocol

from torchledger.formats.catalog import get
from torchledger.formats.format import FormatError, NumberFormat

Overflow = Literal["cast", "saturate", "nonfinite"]
Kind = Literal["zero", "subnormal", "normal", "infinity", "nan"]


class Rational(Protocol):
    """A number that knows itself as a ratio of integers: int, float, `fractions.Fraction`, `decimal.Decimal`."""

    def as_integer_ratio(self) -> tuple[int, int]:
        """Numerator and positive denominator."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A number as a format holds it.

    Attributes:
        format: the format's name.
        bits: the pattern, as an unsigned integer of the format's width.
        value: what the pattern means, exactly (every number of every format here is a Python float).
        kind: `zero`, `subnormal`, `normal`, `infinity` or `nan`.
        inexact: the value is not the number that was given.
        underflow: inexact, and smaller than the smallest normal number (IEEE 754-2019, section 7.5).
        overflow: rounded as if the exponent had no end, the number is beyond the largest one (section 7.4); also true
            of an infinity that the format cannot hold or that was cut.
        relative_error: (value - number) / number; 0 for zero, None where it is no number.
        step: distance to the neighbour away from zero; None for infinity and NaN.
    """

    format: str
    bits: int
    value: float
    kind: Kind
    inexact: bool
    underflow: bool
    overflow: bool
    relative_error: float | None
    step: float | None


def encode(value: Rational, number_format: str | NumberFormat, overflow: Overflow = "cast") -> Encoded:
    """Round a number to the nearest one of a format, ties to the even pattern (IEEE 754-2019, section 4.3.1).

    >>> encode(1e-8, "fp16").value, encode(1e-8, "bf16").value
    (0.0, 1.0011717677116394e-08)

    Args:
        value: a number; an int or a Fraction may be beyond what a float holds.
        number_format: a format or its name.
        overflow: what happens beyond the largest number. `nonfinite`: infinity, or NaN where the format has none (IEEE
            754; the OCP 8-bit formats without saturation). `saturate`: the largest number, infinities included (the OCP
            formats with saturation, CUDA's conversions). `cast`: what PyTorch's `.to(dtype)` does: E4M3 saturates
            (since 2.12; before, it became NaN), all others become infinity.

    Raises:
        FormatError: the format is unknown.
    """
    fmt = get(number_format)
    saturate = overflow == "saturate" or (overflow == "cast" and fmt.cast_saturates)
    if isinstance(value, float) and not math.isfinite(value):
        return _nonfinite(value, fmt, saturate=saturate)
    numerator, denominator = value.as_integer_ratio()
    negative = numerator < 0 or (isinstance(value, float) and math.copysign(1, value) < 0)
    magnitude = _nearest_pattern(abs(numerator), denominator, fmt)
    too_large = magnitude > fmt.largest_pattern
    if too_large:
        magnitude = fmt.largest_pattern if saturate else _nonfinite_pattern(fmt)
    bits = magnitude | negative << fmt.bits - 1
    made = decode(bits, fmt)
    error = _relative_error(made, numerator, denominator)
    inexact = error != 0
    return Encoded(
        format=fmt.name,
        bits=bits,
        value=made,
        kind=kind_of(bits, fmt),
        inexact=inexact,
        underflow=inexact and magnitude >> fmt.mantissa_bits == 0,
        overflow=too_large,
        relative_error=error,
        step=_step(magnitude, fmt),
    )


def _nearest_pattern(numerator: int, denominator: int, fmt: NumberFormat) -> int:
    """The pattern of numerator / denominator (not negative), as if the exponent had no end.

    In units of the last place at its exponent e the number is q = x / 2^(e - m), and patterns count these units upwards
    from zero through all exponents: pattern = (e - e_min)·2^m + q. So neither a q that rounds up to the next power of
    two nor a subnormal that rounds up to a normal number is a case of its own.
    """
    if numerator == 0:
        return 0
    exponent = numerator.bit_length() - denominator.bit_length()  # floor(log2 x), or one above it
    if (numerator << max(0, -exponent)) < (denominator << max(0, exponent)):
        exponent -= 1
    exponent = max(exponent, fmt.smallest_exponent)
    shift = fmt.mantissa_bits - exponent
    units, rest = divmod(numerator << max(0, shift), denominator << max(0, -shift))
    whole = denominator << max(0, -shift)
    if 2 * rest > whole or (2 * rest == whole and units % 2 == 1):
        units += 1
    return ((exponent - fmt.smallest_exponent) << fmt.mantissa_bits) + units


def _nonfinite(value: float, fmt: NumberFormat, *, saturate: bool) -> Encoded:
    lost = not math.isnan(value) and (saturate or not fmt.has_infinity)
    magnitude = _nan_pattern(fmt) if math.isnan(value) else _nonfinite_pattern(fmt)
    if lost and saturate:
        magnitude = fmt.largest_pattern
    bits = magnitude | (math.copysign(1, value) < 0) << fmt.bits - 1
    return Encoded(
        format=fmt.name,
        bits=bits,
        value=decode(bits, fmt),
        kind=kind_of(bits, fmt),
        inexact=lost,
        underflow=False,
        overflow=lost,
        relative_error=None,
        step=_step(magnitude, fmt),
    )


def _nonfinite_pattern(fmt: NumberFormat) -> int:
    """Infinity, or NaN where there is none."""
    return _all_exponent_bits(fmt) if fmt.has_infinity else _nan_pattern(fmt)


def _nan_pattern(fmt: NumberFormat) -> int:
    """The quiet NaN: the first mantissa bit set, or every bit where only that pattern is NaN."""
    if fmt.nan == "all_ones":
        return fmt.largest_pattern + 1
    return _all_exponent_bits(fmt) | 1 << fmt.mantissa_bits - 1


def _all_exponent_bits(fmt: NumberFormat) -> int:
    return ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits


def _relative_error(made: float, numerator: int, denominator: int) -> float | None:
    """(made - x) / x for x = numerator / denominator, rounded once."""
    if not math.isfinite(made):
        return None
    if numerator == 0:
        return 0.0
    top, bottom = made.as_integer_ratio()
    return (top * denominator - numerator * bottom) / (numerator * bottom)


def _step(magnitude: int, fmt: NumberFormat) -> float | None:
    if magnitude > fmt.largest_pattern:
        return None
    exponent = max(magnitude >> fmt.mantissa_bits, 1) - fmt.bias
    return math.ldexp(1, exponent - fmt.mantissa_bits)


def _fields(bits: int, fmt: NumberFormat) -> tuple[int, int, int]:
    """Sign, exponent field and mantissa field.

    Raises:
        FormatError: the pattern has more bits than the format.
    """
    if not 0 <= bits < 1 << fmt.bits:
        raise FormatError(f"{bits:#x} is no pattern of {fmt.name}, which has {fmt.bits} bits")
    mantissa = bits & (1 << fmt.mantissa_bits) - 1
    exponent = bits >> fmt.mantissa_bits & (1 << fmt.exponent_bits) - 1
    return bits >> fmt.bits - 1, exponent, mantissa


def decode(bits: int, number_format: str | NumberFormat) -> float:
    """What a pattern means, exactly.

    >>> decode(0x7BFF, "fp16"), decode(0x7E, "e4m3"), decode(0x7F, "e4m3")
    (65504.0, 448.0, nan)

    Raises:
        FormatError: the format is unknown, or the pattern has more bits than it.
    """
    fmt = get(number_format)
    sign, exponent, mantissa = _fields(bits, fmt)
    magnitude = exponent << fmt.mantissa_bits | mantissa
    if magnitude > fmt.largest_pattern:
        value = math.inf if fmt.has_infinity and mantissa == 0 else math.nan
    elif exponent == 0:
        value = math.ldexp(mantissa, fmt.smallest_exponent - fmt.mantissa_bits)
    else:
        value = math.ldexp(mantissa | 1 << fmt.mantissa_bits, exponent - fmt.bias - fmt.mantissa_bits)
    return math.copysign(value, -1 if sign else 1)


def kind_of(bits: int, number_format: str | NumberFormat) -> Kind:
    """What sort of number a pattern is.

    Raises:
        FormatError: the format is unknown, or the pattern has more bits than it.
    """
    fmt = get(number_format)
    _, exponent, mantissa = _fields(bits, fmt)
    if exponent << fmt.mantissa_bits | mantissa > fmt.largest_pattern:
        return "infinity" if fmt.has_infinity and mantissa == 0 else "nan"
    if exponent == 0:
        return "subnormal" if mantissa else "zero"
    return "normal"


def bit_pattern(bits: int, number_format: str | NumberFormat) -> str:
    """The bits in writing, sign, exponent and mantissa apart.

    >>> bit_pattern(0x3C01, "fp16")
    '0 01111 0000000001'

    Raises:
        FormatError: the format is unknown, or the pattern has more bits than it.
    """
    fmt = get(number_format)
    sign, exponent, mantissa = _fields(bits, fmt)
    return f"{sign} {exponent:0{fmt.exponent_bits}b} {mantissa:0{fmt.mantissa_bits}b}"
