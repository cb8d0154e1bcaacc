"""Numbers in formats on the screen: a pattern and its arithmetic, the ladder around a number, odds, blocks, sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction

from torchledger.formats import (
    Accumulation,
    BlockFormat,
    Encoded,
    EncodedBlocks,
    NumberFormat,
    Rung,
    ScalarFormat,
    ValueRow,
    bit_pattern,
    decode,
    describe,
    find,
    kind_of,
)
from torchledger.units import format_number, group_digits
from torchledger.view.format import drawn_bits
from torchledger.view.screen import Block, Facts, Lines, Row, Table

_DIGITS = {"FP64": 17}
_MOST_DIGITS = 40
_EXACT = Context(prec=800)  # FP64 has at most 767 significant digits


def number_text(value: float, fmt: str = "") -> str:
    """A number with enough digits to tell it from its neighbours."""
    return f"{value:.{_DIGITS.get(fmt, 9)}g}"


def exact_text(value: float) -> str:
    """All digits of a number where there are at most 40, else an integer times a power of two.

    >>> exact_text(3 * 2**-24), exact_text(-65504.0), exact_text(2**-149)
    ('1.78813934326171875e-7', '-65504', '1 · 2^-149')
    """
    if not math.isfinite(value):
        return number_text(value)
    digits = Decimal(value).normalize(_EXACT)
    if len(digits.as_tuple().digits) <= _MOST_DIGITS:
        plain = f"{value:.17g}"
        return plain if Fraction(plain) == Fraction(value) else f"{digits:.{_MOST_DIGITS}g}"
    fraction, exponent = math.frexp(value)
    significand = int(math.ldexp(fraction, 53))
    zeros = (significand & -significand).bit_length() - 1
    return f"{significand >> zeros} · 2^{exponent - 53 + zeros}"


def pattern_screen(bits: int, fmt: ScalarFormat) -> tuple[Block, ...]:
    """A pattern of a format: its bits drawn, and how its value follows from them."""
    pattern, value = bit_pattern(bits, fmt), decode(bits, fmt)
    facts = (
        ("value", number_text(value, fmt.name)),
        ("exactly", exact_text(value)),
        ("kind", kind_of(bits, fmt)),
        ("because", equation(bits, fmt)),
        ("pattern", f"{bits:#0{2 + -(-fmt.bits // 4)}x}"),
    )
    return (
        Lines((f"{fmt.name} {pattern} = {number_text(value, fmt.name)}",), mark="headline"),
        Lines(drawn_bits(pattern, describe(fmt)["layout"]), mark="code"),
        Facts(facts),
    )


def drawn_screen(rows: Sequence[ValueRow]) -> tuple[Block, ...]:
    """The bits of a number in boxes, one format below the other, and how its value follows from them."""
    drawn = []
    for row in rows:
        if row.value is None:
            continue
        fmt = find(row.format)
        about = describe(fmt)
        if isinstance(fmt, BlockFormat):
            layout, because = f"{about['scale_layout']} · {about['layout']}", row.reason.partition(": ")[2]
        else:
            layout, because = about["layout"], equation(int(row.bits.replace(" ", ""), 2), fmt)
        value = number_text(row.value, fmt.name)
        drawn.append(Lines((*drawn_bits(row.bits, layout), f" {value} = {because}"), row.format, mark="code"))
    return tuple(drawn)


def equation(bits: int, fmt: ScalarFormat) -> str:
    """How a value follows from its bits.

    >>> from torchledger import formats
    >>> equation(0x3C01, formats.get("fp16")), equation(0b1001, formats.get("fp4"))
    ('+2^(15 - 15) · (1 + 1/1024)', '-2^(1 - 1) · 1/2')
    """
    kind = kind_of(bits, fmt)
    if kind in {"infinity", "nan"}:
        return {"infinity": "set aside for infinity", "nan": "set aside for NaN"}[kind]
    if not isinstance(fmt, NumberFormat):
        return f"{round(decode(bits, fmt) / fmt.step)} · 2^{fmt.step_exponent}"
    exponent = bits >> fmt.mantissa_bits & (1 << fmt.exponent_bits) - 1
    mantissa = bits & (1 << fmt.mantissa_bits) - 1
    sign = "-" if fmt.signed and bits >> fmt.bits - 1 else "+"
    if not fmt.has_zero:
        return f"2^({exponent} - {fmt.bias})"
    whole = 1 << fmt.mantissa_bits
    if exponent == 0:
        return f"{sign}2^(1 - {fmt.bias}) · {mantissa}/{whole}"
    return f"{sign}2^({exponent} - {fmt.bias}) · (1 + {mantissa}/{whole})"


def ladder_screen(text: str, fmt: ScalarFormat, rungs: Sequence[Rung]) -> tuple[Block, ...]:
    """The neighbours of a number, largest first, the nearest one marked."""
    rows = tuple(
        Row(
            (
                f"{rung.steps:+d}" if rung.steps else "nearest",
                number_text(rung.value, fmt.name),
                "" if rung.gap is None else _power(rung.gap),
                "" if rung.distance is None else f"{rung.distance:+.3g}",
                rung.bits,
                rung.kind,
            ),
            mark="" if rung.steps else "good",
        )
        for rung in reversed(rungs)
    )
    columns = ("steps", "value", "gap above", f"from {text}", "<bits", "<kind")
    return (Table(columns, rows, f"{fmt.name} around {text}"),)


def odds_screen(text: str, rows: Sequence[tuple[Encoded, Encoded, Fraction]]) -> tuple[Block, ...]:
    """What stochastic rounding makes of a number, and how often."""
    shown = tuple(
        Row(
            (
                near.format,
                number_text(near.value, near.format),
                format_number(float(1 - share), 6),
                number_text(far.value, far.format),
                format_number(float(share), 6),
            )
        )
        for near, far, share in rows
    )
    columns = ("<format", "nearer to zero", "probability", "further", "probability of it")
    note = "the expected value is the number itself, up to the largest one of the format"
    return (Table(columns, shown, f"{text} rounded by chance", note),)


def blocks_screen(texts: Sequence[str], fmt: BlockFormat, made: EncodedBlocks) -> tuple[Block, ...]:
    """Numbers in blocks, each with its scale."""
    rows, position = [], 0
    for number, each in enumerate(made.blocks):
        for index, (bits, value) in enumerate(zip(each.element_bits, each.values, strict=True)):
            scale = f"{each.scale:.9g}" if index == 0 else ""
            pattern = bit_pattern(each.scale_bits, fmt.scale) if index == 0 else ""
            element = number_text(decode(bits, fmt.element))
            cells = (
                str(number),
                texts[position],
                scale,
                pattern,
                element,
                bit_pattern(bits, fmt.element),
                number_text(value),
            )
            rows.append(Row(cells))
            position += 1
    columns = ("block", "number", "scale", "<its bits", "element", "<its bits ", "value held")
    tensor = () if made.tensor_scale is None else (Facts((("scale of the tensor", f"{made.tensor_scale:.9g}"),)),)
    return (Table(columns, tuple(rows), f"{fmt.name}: {fmt.title}"), *tensor)


def sums_screen(count: int, term: str, sums: Sequence[Accumulation]) -> tuple[Block, ...]:
    """A sum of equal terms, made in several ways."""
    rows = tuple(
        Row(
            (
                each.format,
                _way(each),
                number_text(each.value, each.format),
                "" if each.error is None else _share(each.error, each.exact),
                "none" if each.bound is None else _share(each.bound, each.exact),
                "" if each.stalled_after is None else group_digits(each.stalled_after),
            ),
            mark="bad" if each.stalled_after is not None or each.error is None else "",
        )
        for each in sums
    )
    columns = ("<format", "<added", "sum", "error", "largest error by theory", "moves no more after")
    exact = float_or_text(sums[0].exact)
    return (Table(columns, rows, f"{group_digits(count)} times {term}: {exact} if nothing were rounded"),)


def float_or_text(number: Fraction) -> str:
    """A fraction as a decimal number; in powers of ten where no float holds it."""
    try:
        if float(number) or not number:
            return format_number(float(number), 10)
    except OverflowError:
        pass  # too large, as others are too small
    return f"about {'-' if number < 0 else ''}10^{_power_of_ten(number)}"


def _way(each: Accumulation) -> str:
    where = "" if each.accumulator == each.format else f" in {each.accumulator}, rounded at the end"
    return f"{'one by one' if each.order == 'sequential' else 'in pairs'}{where}"


def _share(error: Fraction, exact: Fraction) -> str:
    if not exact:
        return format_number(float(error))
    try:
        share = float(100 * error / abs(exact))
    except OverflowError:
        return f"about {'-' if error < 0 else ''}10^{_power_of_ten(100 * error / exact)} %"
    return "0" if share == 0 else f"{format_number(share)} %"


def _power_of_ten(number: Fraction) -> int:
    """The power of ten that is next to a number of any size, by the bits of its numerator and denominator."""
    return round((abs(number.numerator).bit_length() - number.denominator.bit_length()) * math.log10(2))


def _power(gap: float) -> str:
    mantissa, exponent = math.frexp(gap)
    return f"2^{exponent - 1}" if mantissa == 0.5 else format_number(gap)
