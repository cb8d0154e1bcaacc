"""What becomes of one number in each format, and why: plain rows for a viewer to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from torchledger.formats.block import BlockFormat
from torchledger.formats.block_encode import encode_blocks
from torchledger.formats.catalog import Format, ScalarFormat, every, find
from torchledger.formats.decode import Kind, bit_pattern, decode
from torchledger.formats.encode import Encoded, Overflow, encode, relative_error
from torchledger.formats.format import FormatError, NumberFormat
from torchledger.formats.integer import IntegerFormat
from torchledger.formats.rounding import Rational, Rounding
from torchledger.units import format_number

_LARGEST_POWER_OF_TEN = 5000


@dataclass(frozen=True, slots=True)
class ValueRow:
    """One number in one format.

    Attributes:
        format: the format's name.
        value: what the format holds for it, exactly; None where it can hold nothing for it (NaN in FP4).
        kind: `zero`, `subnormal`, `normal`, `infinity` or `nan`; `none` where there is no value.
        bits: the pattern, sign, exponent and mantissa apart; in a block format the scale's, a dot, the element's.
        step: distance to the next number away from zero; None for infinity and NaN, and in a block.
        relative_error: (value - number) / number; None where it is no number or beyond every float.
        inexact, underflow, overflow: IEEE 754's flags.
        reason: why, in one sentence.
    """

    format: str
    value: float | None
    kind: Kind | Literal["none"]
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
    formats: Iterable[str | Format] | None = None,
    overflow: Overflow = "cast",
    rounding: Rounding = "nearest-even",
    random: Rational | None = None,
) -> list[ValueRow]:
    """What becomes of a number in each format, and why; in a block format, alone in its block.

    >>> [(row.format, row.value) for row in explain_value("1e-8", ["fp16", "bf16", "mxfp4"])]
    [('FP16', 0.0), ('BF16', 1.0011717677116394e-08), ('MXFP4', 1.1175870895385742e-08)]

    Args:
        number: a number, or its text (read exactly).
        formats: the formats to show, all known ones if none are given.
        overflow: as for `encode`; of no effect in blocks, where elements are always cut to the largest.
        rounding: as for `encode`.
        random: as for `encode`.

    Raises:
        FormatError: the text is no number, a format is unknown, or as for `encode`.
    """
    exact = read_number(number)
    rows = []
    for fmt in every() if formats is None else [find(name) for name in formats]:
        if isinstance(fmt, BlockFormat):
            rows.append(_in_block(exact, fmt, rounding, random))
        elif isinstance(exact, float) and math.isnan(exact) and _has_no_nan(fmt):
            rows.append(ValueRow(fmt.name, None, "none", "", None, None, True, False, False, "there is no NaN"))
        else:
            rows.append(_alone(exact, fmt, overflow, rounding, random))
    return rows


def _alone(
    exact: float | Fraction, fmt: ScalarFormat, overflow: Overflow, rounding: Rounding, random: Rational | None
) -> ValueRow:
    made = encode(exact, fmt, overflow, rounding, random)
    return ValueRow(
        format=fmt.name,
        value=made.value,
        kind=made.kind,
        bits=bit_pattern(made.bits, fmt),
        step=made.step,
        relative_error=made.relative_error,
        inexact=made.inexact,
        underflow=made.underflow,
        overflow=made.overflow,
        reason=_reason(exact, made, fmt, rounding),
    )


def _in_block(exact: float | Fraction, fmt: BlockFormat, rounding: Rounding, random: Rational | None) -> ValueRow:
    made = encode_blocks([exact], fmt, rounding, randoms=None if random is None else [random])
    each, element = made.blocks[0], decode(made.blocks[0].element_bits[0], fmt.element)
    pattern = f"{bit_pattern(each.scale_bits, fmt.scale)} · {bit_pattern(each.element_bits[0], fmt.element)}"
    factors = [format_number(element, 7), _scale_text(each.scale)]
    if made.tensor_scale is not None:
        factors.append(format_number(made.tensor_scale, 5))
    value = each.values[0]
    number = None if isinstance(exact, float) and not math.isfinite(exact) else exact
    error = None if number is None else relative_error(value, *number.as_integer_ratio())
    is_nan = isinstance(exact, float) and math.isnan(exact)
    is_beyond = not is_nan if number is None else abs(Fraction(*number.as_integer_ratio())) > Fraction(fmt.max)
    reason = f"alone in its block: {' · '.join(factors)}"
    if is_beyond:
        reason = f"beyond the largest value {format_number(fmt.max, 5)}: is cut to {' · '.join(factors)}"
    return ValueRow(
        format=fmt.name,
        value=value,
        kind="nan" if math.isnan(value) else "zero" if value == 0 else "normal",
        bits=pattern,
        step=None,
        relative_error=error,
        inexact=error != 0 and not is_nan,
        underflow=error == -1,
        overflow=is_beyond,
        reason="its block's scale becomes NaN" if number is None else reason,
    )


def _has_no_nan(fmt: ScalarFormat) -> bool:
    return isinstance(fmt, IntegerFormat) or fmt.nan == "none"


def _scale_text(scale: float) -> str:
    mantissa, exponent = math.frexp(scale)
    return f"2^{exponent - 1}" if mantissa == 0.5 else format_number(scale, 5)


def _reason(number: float | Fraction, made: Encoded, fmt: ScalarFormat, rounding: Rounding) -> str:
    note = f" ({fmt.cast_note})" if fmt.cast_note else ""
    unsigned = isinstance(fmt, NumberFormat) and not fmt.signed
    if made.overflow:
        becomes = {"infinity": "becomes infinity", "nan": "becomes NaN, as there is no infinity"}
        border = fmt.min if isinstance(fmt, IntegerFormat) and number < 0 else fmt.max
        end = becomes.get(made.kind, "is cut to it")
        return f"beyond the largest value {format_number(border, 5)}: {end}{'' if unsigned else note}"
    if made.kind in {"infinity", "nan"}:
        own = isinstance(number, float) and not math.isfinite(number)
        return "has a pattern of its own" if own else f"there is neither sign nor zero: becomes NaN{note}"
    if isinstance(fmt, IntegerFormat):
        unit = format_number(fmt.step, 6)
        return _rounded(rounding, "a", f"multiple of {unit}") if made.inexact else f"exact: a multiple of {unit}"
    if unsigned and (number <= 0 or made.underflow):
        why = "there is no sign" if number < 0 else "there is no zero" if number == 0 else "there is nothing smaller"
        return f"{why}: {'the sign is dropped' if number < 0 else 'becomes the smallest value 2^-127'}{note}"
    smallest = f"the smallest subnormal 2^{fmt.smallest_exponent - fmt.mantissa_bits} = "
    smallest += format_number(fmt.smallest_subnormal)
    if made.kind == "zero" and number != 0:
        exponent = fmt.smallest_exponent - fmt.mantissa_bits - 1
        if rounding == "nearest-even":
            return f"at most 2^{exponent}, half of {smallest}: rounds to zero"
        return f"below {smallest}: rounds to zero"
    exactly = "" if made.inexact else ", and hits one exactly"
    if made.kind == "subnormal":
        return (
            f"below the smallest normal 2^{fmt.smallest_exponent} = {format_number(fmt.smallest_normal)}: "
            f"steps of 2^{fmt.smallest_exponent - fmt.mantissa_bits}{exactly}"
        )
    if not made.inexact:
        return "exact"
    step = 0 if made.step is None else math.frexp(made.step)[1] - 1
    bits = fmt.mantissa_bits + 1
    return _rounded(rounding, "one", f"of {bits} significant bit{'s' if bits > 1 else ''}: steps of 2^{step} here")


def _rounded(rounding: Rounding, article: str, neighbours: str) -> str:
    """The sentence of a number that was rounded to one of its neighbours, in the words of the mode."""
    if rounding in {"nearest-even", "nearest-away"}:
        return f"rounded to the nearest {neighbours}"
    how = "by chance" if rounding == "stochastic" else rounding.replace("-", " ")
    return f"rounded {how} to {article} {neighbours}"
