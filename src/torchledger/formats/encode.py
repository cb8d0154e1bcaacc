"""Numbers to bit patterns, exactly: all arithmetic is on integers, and every value is rounded once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from torchledger.formats.catalog import ScalarFormat, scalar
from torchledger.formats.decode import Kind, decode, kind_of
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.integer import IntegerFormat
from torchledger.formats.rounding import Rational, Rounding, checked, rounds_away

Overflow = Literal["cast", "saturate", "nonfinite"]


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
        relative_error: (value - number) / number; 0 for zero, None where it is no number or beyond every float.
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


def encode(
    value: Rational,
    number_format: str | ScalarFormat,
    overflow: Overflow = "cast",
    rounding: Rounding = "nearest-even",
    random: Rational | None = None,
) -> Encoded:
    """Round a number to one of a format, the nearest one unless asked otherwise (IEEE 754-2019, section 4.3).

    >>> encode(1e-8, "fp16").value, encode(1e-8, "bf16").value
    (0.0, 1.0011717677116394e-08)
    >>> encode(1.75, "fp4").value, encode(1.75, "fp4", rounding="toward-zero").value, encode(300, "int8").value
    (2.0, 1.5, 127.0)

    Args:
        value: a number; an int or a Fraction may be beyond what a float holds.
        number_format: a format that holds one number in a pattern, or its name.
        overflow: what happens beyond the largest number. `nonfinite`: infinity, or NaN where the format has none (IEEE
            754; the OCP 8-bit formats without saturation), or the largest number where it has neither. `saturate`: the
            largest number, infinities included (the OCP formats with saturation, CUDA's conversions). `cast`: what
            PyTorch's `.to(dtype)` does: E4M3 saturates (since 2.12; before, it became NaN), E8M0 drops the sign and
            makes zero 2^-127, all others become infinity. Where PyTorch has no cast (FP6, FP4) or one that wraps
            around (INT8), it saturates. Without `cast` E8M0 has no negative number and no zero: NaN. (Between 2^-127
            and 2^-126 PyTorch's cast to E8M0 always rounds up; here the nearest is taken.)
        rounding: `nearest-even`, `nearest-away` (ties go away from zero), `toward-zero`, `up`, `down`, `stochastic`.
            A finite number that a directed mode rounds towards zero never becomes infinite (section 7.4).
        random: for `stochastic`: a number of [0, 1); the number is rounded away from zero if it is below the share of
            the gap that is beyond the lower neighbour.

    Raises:
        FormatError: the format is unknown or holds no number alone; it has no pattern for NaN; there is no such
            rounding; the random number is missing, beyond [0, 1), or given to a mode that needs none.
    """
    fmt = scalar(number_format)
    mode, drawn = checked(rounding, random)
    if isinstance(value, float) and not math.isfinite(value):
        return _nonfinite(value, fmt, overflow)
    numerator, denominator = value.as_integer_ratio()
    negative = numerator < 0 or (isinstance(value, float) and math.copysign(1, value) < 0)
    if isinstance(fmt, IntegerFormat):
        return _integer(numerator, denominator, fmt, mode, drawn)
    if not fmt.signed:
        if overflow != "cast" and (negative or numerator == 0):
            return _encoded(_nan_pattern(fmt), fmt, numerator, denominator, overflow=False)
        negative = False
    magnitude = _pattern(abs(numerator), denominator, fmt, mode, drawn, negative=negative)
    too_large = magnitude > fmt.largest_pattern
    if too_large:
        inwards = mode == "toward-zero" or (mode == "up" and negative) or (mode == "down" and not negative)
        magnitude = fmt.largest_pattern if inwards or _saturates(fmt, overflow) else _nonfinite_pattern(fmt)
    bits = magnitude | (negative << fmt.bits - 1 if fmt.signed else 0)
    return _encoded(bits, fmt, numerator, denominator, overflow=too_large)


def stochastic_odds(value: Rational, number_format: str | ScalarFormat) -> tuple[Encoded, Encoded, Fraction]:
    """The two neighbours that stochastic rounding chooses from, nearer to zero first, and the second's probability.

    The expected value is the number itself: stochastic rounding has no bias (up to the largest number).

    >>> near, far, probability = stochastic_odds(1.125, "fp4")
    >>> near.value, far.value, probability
    (1.0, 1.5, Fraction(1, 4))

    Raises:
        FormatError: as for `encode`; or the number is infinite or NaN.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"{value} lies between no neighbours")
    away: Rounding = "down" if value.as_integer_ratio()[0] < 0 else "up"
    near, far = encode(value, number_format, rounding="toward-zero"), encode(value, number_format, rounding=away)
    if not math.isfinite(far.value):
        # as if the exponent had no end, the next number is one step beyond the largest
        step = near.step or math.nan
        share = (abs(Fraction(*value.as_integer_ratio())) - abs(Fraction(near.value))) / Fraction(step)
        return near, far, min(share, Fraction(1))
    gap = Fraction(far.value) - Fraction(near.value)
    share = (Fraction(*value.as_integer_ratio()) - Fraction(near.value)) / gap if gap else Fraction(0)
    return near, far, share


def _pattern(
    numerator: int, denominator: int, fmt: NumberFormat, mode: Rounding, drawn: tuple[int, int], *, negative: bool
) -> int:
    """The pattern of numerator / denominator (not negative), as if the exponent had no end.

    In units of the last place at its exponent e the number is q = x / 2^(e - m), and patterns count these units upwards
    from zero through all exponents: pattern = (e - e_min)·2^m + q. So neither a q that rounds up to the next power of
    two nor a subnormal that rounds up to a normal number is a case of its own. A format without zero begins at 2^e_min,
    which is q = 2^m, and what is smaller ends there.
    """
    if numerator == 0:
        return 0
    exponent = numerator.bit_length() - denominator.bit_length()  # floor(log2 x), or one above it
    if (numerator << max(0, -exponent)) < (denominator << max(0, exponent)):
        exponent -= 1
    exponent = max(exponent, fmt.smallest_exponent)
    shift = fmt.mantissa_bits - exponent
    whole = denominator << max(0, -shift)
    units, rest = divmod(numerator << max(0, shift), whole)
    units += rounds_away(rest, whole, mode, drawn, is_odd=units % 2 == 1, is_negative=negative)
    pattern = ((exponent - fmt.smallest_exponent) << fmt.mantissa_bits) + units
    return pattern if fmt.has_zero else max(0, pattern - (1 << fmt.mantissa_bits))


def _integer(numerator: int, denominator: int, fmt: IntegerFormat, mode: Rounding, drawn: tuple[int, int]) -> Encoded:
    whole = denominator << max(0, fmt.step_exponent)
    units, rest = divmod(abs(numerator) << max(0, -fmt.step_exponent), whole)
    negative = numerator < 0
    units += rounds_away(rest, whole, mode, drawn, is_odd=units % 2 == 1, is_negative=negative)
    held = max(fmt.smallest_integer, min(-units if negative else units, fmt.largest_integer))
    return _encoded(held % (1 << fmt.bits), fmt, numerator, denominator, overflow=abs(held) != units)


def _encoded(bits: int, fmt: ScalarFormat, numerator: int, denominator: int, *, overflow: bool) -> Encoded:
    made, kind = decode(bits, fmt), kind_of(bits, fmt)
    error = relative_error(made, numerator, denominator)
    inexact = error != 0
    if isinstance(fmt, NumberFormat) and not fmt.has_zero:
        tiny = bits == 0 and abs(numerator) << -fmt.smallest_exponent < denominator
    else:
        tiny = kind in {"zero", "subnormal"}
    return Encoded(
        format=fmt.name,
        bits=bits,
        value=made,
        kind=kind,
        inexact=inexact,
        underflow=inexact and tiny,
        overflow=overflow,
        relative_error=error,
        step=_step(bits, fmt),
    )


def _nonfinite(value: float, fmt: ScalarFormat, overflow: Overflow) -> Encoded:
    negative = math.copysign(1, value) < 0
    if math.isnan(value):
        if isinstance(fmt, IntegerFormat) or fmt.nan == "none":
            raise FormatError(f"{fmt.name} has no NaN: no pattern stands for it")
        magnitude, lost = _nan_pattern(fmt), False
    elif isinstance(fmt, IntegerFormat):
        magnitude, lost = (fmt.smallest_integer if negative else fmt.largest_integer) % (1 << fmt.bits), True
        negative = False  # the pattern has its sign already
    else:
        saturates = _saturates(fmt, overflow) and (fmt.signed or not negative)
        magnitude = fmt.largest_pattern if saturates else _nonfinite_pattern(fmt)
        lost = saturates or not fmt.has_infinity
    bits = magnitude | (negative << fmt.bits - 1 if isinstance(fmt, IntegerFormat) or fmt.signed else 0)
    return Encoded(
        format=fmt.name,
        bits=bits,
        value=decode(bits, fmt),
        kind=kind_of(bits, fmt),
        inexact=lost,
        underflow=False,
        overflow=lost,
        relative_error=None,
        step=_step(bits, fmt),
    )


def _saturates(fmt: NumberFormat, overflow: Overflow) -> bool:
    return overflow == "saturate" or (overflow == "cast" and fmt.cast_saturates)


def _nonfinite_pattern(fmt: NumberFormat) -> int:
    """Infinity, or NaN where there is none, or the largest number where there is neither."""
    if fmt.has_infinity:
        return _all_exponent_bits(fmt)
    return fmt.largest_pattern if fmt.nan == "none" else _nan_pattern(fmt)


def _nan_pattern(fmt: NumberFormat) -> int:
    """The quiet NaN: the first mantissa bit set, or every bit where only that pattern is NaN."""
    if fmt.nan == "all_ones":
        return fmt.largest_pattern + 1
    return _all_exponent_bits(fmt) | 1 << fmt.mantissa_bits - 1


def _all_exponent_bits(fmt: NumberFormat) -> int:
    return ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits


def relative_error(made: float, numerator: int, denominator: int) -> float | None:
    """(made - x) / x for x = numerator / denominator, rounded once; None where it is no number that a float holds.

    >>> relative_error(1.5, 2, 1), relative_error(0.0, 0, 1), relative_error(1.0, 1, 10**400)
    (-0.25, 0.0, None)
    """
    if not math.isfinite(made):
        return None
    top, bottom = made.as_integer_ratio()
    if numerator == 0:
        return 0.0 if top == 0 else None
    try:
        return (top * denominator - numerator * bottom) / (numerator * bottom)
    except OverflowError:
        return None


def _step(bits: int, fmt: ScalarFormat) -> float | None:
    if isinstance(fmt, IntegerFormat):
        return fmt.step
    magnitude = bits & (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1
    if magnitude > fmt.largest_pattern:
        return None
    exponent = max(magnitude >> fmt.mantissa_bits, int(fmt.has_zero)) - fmt.bias
    return math.ldexp(1, exponent - fmt.mantissa_bits)
