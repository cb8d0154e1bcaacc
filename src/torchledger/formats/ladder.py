"""The numbers of a format that lie around a number: what it can become, and how far apart they are."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torchledger.formats.catalog import ScalarFormat, scalar
from torchledger.formats.decode import Kind, bit_pattern, decode, kind_of
from torchledger.formats.encode import encode
from torchledger.formats.format import FormatError
from torchledger.formats.integer import IntegerFormat
from torchledger.formats.rounding import Rational


@dataclass(frozen=True, slots=True)
class Rung:
    """A number of a format.

    Attributes:
        steps: how many numbers it is above the nearest one: 0 for that, negative below.
        bits: its pattern, sign, exponent and mantissa apart.
        value: the number.
        kind: `zero`, `subnormal`, `normal` or `infinity`.
        gap: distance to the rung above it; None at the top and below infinity.
        distance: its value less the number that was asked for, rounded once; None for infinity.
    """

    steps: int
    bits: str
    value: float
    kind: Kind
    gap: float | None
    distance: float | None


def ladder(value: Rational, number_format: str | ScalarFormat, rungs: int = 3) -> tuple[Rung, ...]:
    """The nearest number of a format with its neighbours on both sides, smallest first.

    >>> [rung.value for rung in ladder(1, "fp4", 2)]
    [0.0, 0.5, 1.0, 1.5, 2.0]

    Args:
        value: a number.
        number_format: a format that holds one number in a pattern, or its name.
        rungs: how many neighbours on each side; fewer where the format ends. There is one zero.

    Raises:
        FormatError: as for `encode`; the number is infinite or NaN; or `rungs` is negative.
    """
    fmt = scalar(number_format)
    if rungs < 0:
        raise FormatError(f"a ladder has at least 0 rungs on each side, not {rungs}")
    if isinstance(value, float) and not math.isfinite(value):
        raise FormatError(f"{value} has no neighbours")
    center = _position(encode(value, fmt, "saturate" if _is_signed(fmt) else "cast").bits, fmt)
    lowest, highest = _ends(fmt)
    if _has_infinity(fmt) and encode(value, fmt, "nonfinite").kind == "infinity":
        center = highest if value.as_integer_ratio()[0] > 0 else lowest
    places = range(max(lowest, center - rungs), min(highest, center + rungs) + 1)
    numbers = {place: _number(place, fmt) for place in range(places.start, min(highest, places.stop) + 1)}
    top, bottom = value.as_integer_ratio()
    return tuple(
        Rung(
            steps=place - center,
            bits=bit_pattern(_bits(place, fmt), fmt),
            value=numbers[place],
            kind=kind_of(_bits(place, fmt), fmt),
            gap=_gap(numbers[place], numbers.get(place + 1)),
            distance=_distance(numbers[place], top, bottom),
        )
        for place in places
    )


def _position(bits: int, fmt: ScalarFormat) -> int:
    """The place of a pattern among all numbers in their order, 0 for zero (or E8M0's smallest)."""
    if isinstance(fmt, IntegerFormat):
        return round(decode(bits, fmt) / fmt.step)
    magnitude = bits & (1 << fmt.exponent_bits + fmt.mantissa_bits) - 1
    return -magnitude if magnitude != bits else magnitude


def _bits(place: int, fmt: ScalarFormat) -> int:
    if isinstance(fmt, IntegerFormat):
        return place % (1 << fmt.bits)
    return abs(place) | (place < 0) << fmt.bits - 1


def _number(place: int, fmt: ScalarFormat) -> float:
    return decode(_bits(place, fmt), fmt)


def _ends(fmt: ScalarFormat) -> tuple[int, int]:
    """The places of the first and last number, infinities included."""
    if isinstance(fmt, IntegerFormat):
        return fmt.smallest_integer, fmt.largest_integer
    highest = fmt.largest_pattern + fmt.has_infinity
    return (-highest if fmt.signed else 0), highest


def _is_signed(fmt: ScalarFormat) -> bool:
    return isinstance(fmt, IntegerFormat) or fmt.signed


def _has_infinity(fmt: ScalarFormat) -> bool:
    return not isinstance(fmt, IntegerFormat) and fmt.has_infinity


def _gap(value: float, above: float | None) -> float | None:
    if above is None or not math.isfinite(value) or not math.isfinite(above):
        return None
    return above - value


def _distance(value: float, top: int, bottom: int) -> float | None:
    if not math.isfinite(value):
        return None
    over, under = value.as_integer_ratio()
    try:
        return (over * bottom - top * under) / (under * bottom)
    except OverflowError:
        return -math.inf if top > 0 else math.inf
