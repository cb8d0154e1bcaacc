"""`torchledger format`: what a number format can represent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, get_args

import click

from torchledger import formats
from torchledger.cli.documented import Documented
from torchledger.cli.named_path import NamedPath
from torchledger.cli.output import json_option, note, show, show_json
from torchledger.formats import BlockFormat, Format, FormatError, NumberFormat, Overflow, ScalarFormat
from torchledger.units import parse_count
from torchledger.view.format import format_screen, formats_screen, tensor_screen, value_screen
from torchledger.view.format_numbers import (
    blocks_screen,
    drawn_screen,
    ladder_screen,
    odds_screen,
    pattern_screen,
    sums_screen,
)
from torchledger.view.format_page import Bits, Steps, format_page
from torchledger.view.screen import Screen

_BETWEEN_SIZES = re.compile(r"[\s,]+|(?<=[\dkMB])[x×*](?=\d)")

#: Formats that `format sum` shows unless asked for others.
_SUMMED = ("FP32", "FP16", "BF16", "FP8_E4M3", "FP8_E5M2")


#: The bits of a number are drawn below the table where at most so many formats are asked for.
_DRAWN = 4


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of the command line: those that were not given are None."""

    ladder: int | None
    rounding: formats.Rounding | None
    random: str | None
    overflow: Overflow | None
    scale_rule: formats.ScaleRule | None
    term: str | None

    def only(self, what: str, *allowed: str) -> None:
        """Refuse options that say nothing about what is asked.

        Raises:
            UsageError: some were given, all of them named.
        """
        stray = [
            f"--{f.name.replace('_', '-')}" for f in fields(self) if f.name not in allowed and getattr(self, f.name)
        ]
        if stray:
            raise click.UsageError(f"{', '.join(stray)} {'say' if len(stray) > 1 else 'says'} nothing about {what}")

    def given(self) -> dict[str, Any]:
        """The options that were given."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What is answered, in all its looks."""

    title: str
    question: Mapping[str, Any]
    answer: Any
    screen: Screen
    bits: tuple[Bits, ...] = ()
    ladders: tuple[Steps, ...] = ()


@click.command(
    cls=Documented,
    context_settings={"ignore_unknown_options": True},
    examples=(
        "torchledger format                      every format: bits, range, step, bytes with scales",
        "torchledger format bf16                 one format, its bits drawn",
        "torchledger format nvfp4                a block format: elements, scales, bits an element",
        "torchledger format 1e-8                 the number in every format: 0 in FP16, not in BF16",
        "torchledger format 65520 --dtype fp16 --rounding toward-zero",
        "torchledger format 1e-8 --ladder 3 --dtype bf16 --html bf16.html",
        "torchledger format 0.3 --rounding stochastic --dtype fp4",
        "torchledger format bits 0x7bff --dtype fp16",
        "torchledger format block 1 -7 0.3 --dtype mxfp4",
        "torchledger format sum 4096 --dtype bf16   4,096 ones stop at 256",
        "torchledger format tensor 49152x12288   bytes of a tensor in every format",
    ),
)
@click.argument("what", nargs=-1)
@click.option("--dtype", "names", multiple=True, metavar="FORMAT", help="Only these formats (may be repeated).")
@click.option("--ladder", type=click.IntRange(1, 64), help="So many neighbours of the number on each side as well.")
@click.option("--rounding", type=click.Choice(formats.ROUNDINGS), help="How to round (default: nearest-even).")
@click.option("--random", metavar="NUMBER", help="The random number of stochastic rounding, from [0, 1).")
@click.option(
    "--overflow",
    type=click.Choice(get_args(Overflow)),
    help="Beyond the largest number: what a cast does (default), the largest, or infinity and NaN.",
)
@click.option(
    "--scale-rule",
    type=click.Choice(get_args(formats.ScaleRule)),
    help="Scales of MX blocks: the specification's floor (default), or the smallest that cuts nothing.",
)
@click.option("--term", metavar="NUMBER", help="What `sum` adds up (default: 1).")
@click.option(
    "--html",
    type=NamedPath(dir_okay=False, writable=True, path_type=Path),
    help="Write a page with the bits drawn as well.",
)
@json_option
def command(what: tuple[str, ...], names: tuple[str, ...], html: Path | None, as_json: bool, **options: Any) -> None:
    """What a number format can represent, and what becomes of a number in it.

    WHAT is a number, the name of a format, `tensor` with its sizes (`49152x12288`, or one by one), `bits` with a
    pattern, `block` with numbers that share a scale, or `sum` with a count of terms; without it, all formats are
    listed.
    """
    if stray := [word for word in what if word.startswith("--")]:  # a single dash begins a negative number
        raise click.UsageError(f"no such option: {', '.join(stray)}")
    asked = _Asked(**options)
    chosen = tuple(formats.find(name) for name in names)
    match what:
        case ():
            asked.only("a list of formats")
            answer = _listed(chosen or formats.every())
        case ("tensor", *sizes):
            asked.only("the bytes of a tensor")
            answer = _tensor(sizes, chosen or formats.every())
        case ("bits", *pattern):
            asked.only("a pattern")
            answer = _pattern(" ".join(pattern), chosen)
        case ("block", *numbers):
            asked.only("a block", "rounding", "scale_rule")
            answer = _blocks(numbers, chosen or formats.blocks(), asked)
        case ("sum", *counts):
            asked.only("a sum", "term", "rounding")
            answer = _sums(counts, names or _SUMMED, asked)
        case (one,):
            answer = _one(one, chosen, asked)
        case _:
            raise click.UsageError(
                f"one number or one format is asked for at a time, not {len(what)}: {' '.join(what)}"
            )
    if html is not None:
        page = format_page(answer.title, answer.screen, answer.answer, bits=answer.bits, ladders=answer.ladders)
        html.write_text(page, encoding="utf-8")
        note(f"wrote {html}")
    if as_json:
        show_json("format", {**answer.question, **asked.given()}, answer.answer)
    else:
        show(answer.screen)


def _listed(chosen: Sequence[Format]) -> _Answer:
    rows = [formats.describe(fmt) for fmt in chosen]
    bits = tuple(Bits(row["name"], row["layout"], row["layout"]) for row in rows if row["family"] != "block")
    return _Answer("Number formats", {"formats": [fmt.name for fmt in chosen]}, rows, formats_screen(rows), bits)


def _tensor(sizes: Sequence[str], chosen: Sequence[Format]) -> _Answer:
    if not sizes:
        raise click.UsageError("a tensor of which sizes? Write them, as in `format tensor 49152x12288`")
    shape = [parse_count(size) for size in _BETWEEN_SIZES.split(" ".join(sizes).strip()) if size]
    parts = {fmt.name: formats.tensor_parts(shape, fmt) for fmt in chosen}
    held = {name: sum(both) for name, both in parts.items()}
    told = {"bytes": held, "scale_bytes": {name: scales for name, (_, scales) in parts.items()}}
    return _Answer("Bytes of a tensor", {"shape": shape}, told, tensor_screen(shape, held, chosen))


def _one(text: str, chosen: Sequence[Format], asked: _Asked) -> _Answer:
    """A format where the text names one, a number otherwise."""
    try:
        row = formats.describe(text)
    except FormatError as no_format:
        try:
            number = formats.read_number(text)
        except FormatError as no_number:
            raise FormatError(f"neither a format nor a number. {no_format}. {no_number}") from None
        return _number(text, number, chosen, asked)
    asked.only("a format")
    if chosen:
        raise click.UsageError(
            "--dtype says nothing about a format: leave it out, or write `format --dtype` alone to list some"
        )
    layout = row["layout"] if row["family"] != "block" else f"{row['scale_layout']} · {row['layout']}"
    bits = (Bits(row["name"], layout, layout),)
    return _Answer(f"{row['name']}: {row['title']}", {"format": row["name"]}, row, format_screen(row), bits)


def _number(text: str, number: Any, chosen: Sequence[Format], asked: _Asked) -> _Answer:
    asked.only("a number", "ladder", "rounding", "random", "overflow")
    only_here = ", ".join(fmt.name for fmt in chosen)
    question: dict[str, Any] = {"number": text}
    if asked.rounding == "stochastic" and asked.random is None:
        asked.only("the odds of stochastic rounding, which are those of a cast", "ladder", "rounding")
        scalars = _scalars(chosen)
        odds = [formats.stochastic_odds(number, fmt) for fmt in scalars]
        told = [
            {"format": near.format, "near": near.value, "far": far.value, "probability_of_far": float(share)}
            for near, far, share in odds
        ]
        screen: Screen = odds_screen(text, odds)
        title = f"{text} rounded by chance"
        bits: tuple[Bits, ...] = ()
    else:
        random = None if asked.random is None else formats.read_number(asked.random)
        rows = formats.explain_value(
            number, chosen or None, asked.overflow or "cast", asked.rounding or "nearest-even", random
        )
        told = [{name: getattr(each, name) for name in each.__slots__} for each in rows]
        drawn = drawn_screen(rows) if 0 < len(chosen) <= _DRAWN else ()
        screen, title = (*value_screen(text, rows), *drawn), f"{text} in {only_here or 'every format'}"
        bits = tuple(Bits(row.format, row.bits, _layout(row.format), f"{row.value:.9g}") for row in rows if row.bits)
    if asked.ladder is None:
        return _Answer(title, question, told, screen, bits)
    ladders = {fmt.name: formats.ladder(number, fmt, asked.ladder) for fmt in _scalars(chosen)}
    for name, rungs in ladders.items():
        screen = (*screen, *ladder_screen(text, formats.scalar(name), rungs))
    real = _real(number)
    place = (math.inf if number > 0 else -math.inf) if real is None else real
    steps = tuple(Steps(name, text, place, rungs) for name, rungs in ladders.items())
    listed = {name: [asdict(rung) for rung in rungs] for name, rungs in ladders.items()}
    return _Answer(title, question, {"formats": told, "ladders": listed}, screen, bits, steps)


def _pattern(text: str, chosen: Sequence[Format]) -> _Answer:
    if not text.strip():
        raise click.UsageError("bits of which pattern? Write 0x7bff, 0b101 or '0 11 1'")
    if not chosen:
        raise click.UsageError("bits of which format? Add --dtype FORMAT")
    screen: list[Any] = []
    told, drawn = [], []
    for fmt in _scalars(chosen):
        bits = formats.read_pattern(text, fmt)
        pattern, value = formats.bit_pattern(bits, fmt), formats.decode(bits, fmt)
        screen.extend(pattern_screen(bits, fmt))
        told.append({"format": fmt.name, "bits": pattern, "value": value, "kind": formats.kind_of(bits, fmt)})
        drawn.append(Bits(fmt.name, pattern, _layout(fmt.name), f"{value:.9g}"))
    return _Answer(f"Bits {text}", {"bits": text}, told, tuple(screen), tuple(drawn))


def _blocks(texts: Sequence[str], chosen: Sequence[Format], asked: _Asked) -> _Answer:
    if not texts:
        raise click.UsageError("a block of which numbers? Write them one after the other")
    if asked.rounding == "stochastic":
        raise click.UsageError("a block with stochastic rounding differs each time; choose another --rounding")
    if asked.scale_rule and not any(isinstance(fmt, BlockFormat) and fmt.tensor_scale is None for fmt in chosen):
        raise click.UsageError("--scale-rule is for scales that are powers of two: those of the MX formats")
    numbers = [formats.read_number(text) for text in texts]
    screen: list[Any] = []
    told, drawn = [], []
    for each in chosen:
        fmt = formats.block(each) if isinstance(each, BlockFormat) else formats.block(each.name)
        made = formats.encode_blocks(
            numbers, fmt, asked.rounding or "nearest-even", scale_rule=asked.scale_rule or "floor"
        )
        screen.extend(blocks_screen(texts, fmt, made))
        told.append(asdict(made))
        layout = _layout(fmt.name)
        drawn += [
            Bits(fmt.name, f"{scale} · {formats.bit_pattern(bits, fmt.element)}", layout, f"{value:.9g}")
            for block in made.blocks
            for scale in [formats.bit_pattern(block.scale_bits, fmt.scale)]
            for bits, value in zip(block.element_bits, block.values, strict=True)
        ]
    return _Answer("Blocks with a scale", {"numbers": list(texts)}, told, tuple(screen), tuple(drawn))


def _sums(counts: Sequence[str], names: Sequence[str], asked: _Asked) -> _Answer:
    if len(counts) != 1:
        raise click.UsageError("a sum of how many terms? Write one count, as in `format sum 4096 --term 0.1`")
    if asked.rounding == "stochastic":
        raise click.UsageError("a sum with stochastic rounding differs each time; choose another --rounding")
    count, text, rounding = parse_count(counts[0]), asked.term or "1", asked.rounding or "nearest-even"
    term, wide = formats.read_number(text), formats.get("FP32")
    made = []
    for fmt in (formats.get(name) for name in names):
        made += [
            formats.accumulate_equal(term, count, fmt, order, rounding=rounding) for order in get_args(formats.Order)
        ]
        if fmt.mantissa_bits < wide.mantissa_bits:
            made.append(formats.accumulate_equal(term, count, fmt, accumulator=wide, rounding=rounding))
    told = [
        asdict(each) | {"exact": _real(each.exact), "error": _real(each.error), "bound": _real(each.bound)}
        for each in made
    ]
    screen = sums_screen(count, text, made)
    return _Answer(f"{count:,} times {text}", {"terms": count, "term": text}, told, screen)


def _real(number: Any) -> float | None:
    """A fraction as a float; None where there is none, or no float holds it."""
    try:
        return None if number is None else float(number)
    except OverflowError:
        return None


def _scalars(chosen: Sequence[Format]) -> list[ScalarFormat]:
    """The chosen formats that hold numbers alone; all floating ones if none are chosen."""
    if not chosen:
        return list[ScalarFormat](formats.known())
    return [fmt if isinstance(fmt, NumberFormat) else formats.scalar(fmt.name) for fmt in chosen]


def _layout(name: str) -> str:
    row = formats.describe(name)
    return row["layout"] if row["family"] != "block" else f"{row['scale_layout']} · {row['layout']}"
