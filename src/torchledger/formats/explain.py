"""What a format can represent, and what becomes of one number in each of them: plain rows for a viewer to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torchledger.formats.catalog import get, known
from torchledger.formats.encode import Encoded, Kind, Overflow, bit_pattern, encode
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.units import format_number

if TYPE_CHECKING:
    from fractions import Fraction

_LARGEST_POWER_OF_TEN = 5000


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One number in one format.

    Attributes:
        format: the format's name.
        value: what the format holds for it, exactly.
        kind: `zero`, `subnormal`, `normal`, `infinity` or `nan`.
        bits: the pattern, sign, exponent and mantissa apart.
        step: distance to the next number away from zero; None for infinity and NaN.
        relative_error: (value - number) / number; None where it is no number.
        inexact, underflow, overflow: IEEE 754's flags.
        reason: why, in one sentence.
    """

    format: str
    value: float
    kind: Kind
    bits: str
    step: float | None
    relative_error: float | None
    inexact: bool
    underflow: bool
    overflow: bool
    reason: str


def read_number(text: str | float | Fraction) -> float | Fraction:
    """A number as exactly as it was written: `1e-8` is 1/100,000,000 here, and not the float next to it.

    Also `1/3`, `-0.0`, `inf`, `nan` and C's hexadecimal floats (`0x1.8p-3`).

    >>> read_number("1e-8"), read_number("0x1p-24")
    (Fraction(1, 100000000), 5.960464477539063e-08)

    Raises:
        FormatError: it is no number.
    """
    if not isinstance(text, str):
        return text
    plain = text.strip().lower()
    try:
        number = _exact(plain)
    except (ValueError, ZeroDivisionError):
        raise FormatError(f"{text!r} is no number; write 1e-8, 1/3, 65520, -0.0, inf, nan or 0x1p-24") from None
    except OverflowError:
        raise FormatError(f"{text!r} is far beyond every format; the largest number is about 1.8e308") from None
    return -0.0 if number == 0 and plain.startswith("-") else number


def _exact(plain: str) -> float | Fraction:
    from fractions import Fraction  # loads decimal (10 ms), which rooms that only ask for bytes do not need

    if "0x" in plain:
        return float.fromhex(plain)
    if plain.lstrip("+-") in {"inf", "infinity", "nan"}:
        return float(plain)
    _, _, exponent = plain.partition("e")
    if exponent and abs(int(exponent)) > _LARGEST_POWER_OF_TEN:
        raise OverflowError(plain)
    return Fraction(plain)


def explain_value(
    number: str | float | Fraction,
    formats: Iterable[str | NumberFormat] | None = None,
    overflow: Overflow = "cast",
) -> list[ValueRow]:
    """What becomes of a number in each format, and why.

    >>> [(row.format, row.value) for row in explain_value("1e-8", ["fp16", "bf16"])]
    [('FP16', 0.0), ('BF16', 1.0011717677116394e-08)]

    Args:
        number: a number, or its text (read exactly).
        formats: the formats to show, all known ones if none are given.
        overflow: as for `encode`.

    Raises:
        FormatError: the text is no number, or a format is unknown.
    """
    exact = read_number(number)
    rows = []
    for fmt in known() if formats is None else [get(name) for name in formats]:
        made = encode(exact, fmt, overflow)
        rows.append(
            ValueRow(
                format=fmt.name,
                value=made.value,
                kind=made.kind,
                bits=bit_pattern(made.bits, fmt),
                step=made.step,
                relative_error=made.relative_error,
                inexact=made.inexact,
                underflow=made.underflow,
                overflow=made.overflow,
                reason=_reason(exact, made, fmt),
            )
        )
    return rows


def _reason(number: float | Fraction, made: Encoded, fmt: NumberFormat) -> str:
    if made.overflow:
        becomes = {"infinity": "becomes infinity", "nan": "becomes NaN, as there is no infinity"}
        note = f" ({fmt.cast_note})" if fmt.cast_note else ""
        return f"beyond the largest value {format_number(fmt.max, 5)}: {becomes.get(made.kind, 'is cut to it')}{note}"
    if made.kind in {"infinity", "nan"}:
        return "has a pattern of its own"
    if made.kind == "zero" and number != 0:
        exponent = fmt.smallest_exponent - fmt.mantissa_bits
        smallest = f"the smallest subnormal 2^{exponent} = {format_number(fmt.smallest_subnormal)}"
        return f"at most 2^{exponent - 1}, half of {smallest}: rounds to zero"
    exactly = "" if made.inexact else ", and hits one exactly"
    if made.kind == "subnormal":
        return (
            f"below the smallest normal 2^{fmt.smallest_exponent} = {format_number(fmt.smallest_normal)}: "
            f"steps of 2^{fmt.smallest_exponent - fmt.mantissa_bits}{exactly}"
        )
    if not made.inexact:
        return "exact"
    step = 0 if made.step is None else math.frexp(made.step)[1] - 1
    return f"rounded to the nearest of {fmt.mantissa_bits + 1} significant bits: steps of 2^{step} here"


def describe(number_format: str | NumberFormat) -> dict[str, Any]:
    """All properties of a format as a plain row.

    >>> row = describe("fp16")
    >>> row["max"], row["smallest_normal"] == 2**-14, row["epsilon"] == 2**-10, row["layout"]
    (65504.0, True, True, 's eeeee mmmmmmmmmm')

    Raises:
        FormatError: the format is unknown.
    """
    fmt = get(number_format)
    return {
        "name": fmt.name,
        "title": fmt.title,
        "bits": fmt.bits,
        "sign_bits": 1,
        "exponent_bits": fmt.exponent_bits,
        "mantissa_bits": fmt.mantissa_bits,
        "layout": f"s {'e' * fmt.exponent_bits} {'m' * fmt.mantissa_bits}",
        "bias": fmt.bias,
        "bytes_per_element": fmt.bytes_per_element,
        "max": fmt.max,
        "smallest_normal": fmt.smallest_normal,
        "smallest_subnormal": fmt.smallest_subnormal,
        "epsilon": fmt.epsilon,
        "decimal_digits": fmt.decimal_digits,
        "round_trip_digits": fmt.round_trip_digits,
        "largest_counting_integer": fmt.largest_counting_integer,
        "has_infinity": fmt.has_infinity,
        "nan": fmt.nan,
        "cast_saturates": fmt.cast_saturates,
        "cast_note": fmt.cast_note,
        "aliases": list(fmt.aliases),
        "use": fmt.use,
        "source": fmt.source,
    }
