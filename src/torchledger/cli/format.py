"""`torchledger format`: what a number format can represent."""

from __future__ import annotations

import re
from typing import Any

import click

from torchledger import formats
from torchledger.cli.documented import Documented
from torchledger.cli.output import json_option, show, show_json
from torchledger.formats import FormatError
from torchledger.units import parse_count
from torchledger.view.format import format_screen, formats_table, tensor_screen, value_screen

_BETWEEN_SIZES = re.compile(r"[\s,]+|(?<=[\dkMB])[x×*](?=\d)")


@click.command(
    cls=Documented,
    context_settings={"ignore_unknown_options": True},
    examples=(
        "torchledger format                      every format: bits, range, step",
        "torchledger format bf16                 one format, its bits drawn",
        "torchledger format 1e-8                 the number in every format: 0 in FP16, not in BF16",
        "torchledger format 65520 --dtype fp16",
        "torchledger format tensor 49152x12288   bytes of a tensor in every format",
    ),
)
@click.argument("what", nargs=-1)
@click.option("--dtype", "names", multiple=True, metavar="FORMAT", help="Only these formats (may be repeated).")
@json_option
def command(what: tuple[str, ...], names: tuple[str, ...], as_json: bool) -> None:
    """What a number format can represent, and what becomes of a number in it.

    WHAT is a number, the name of a format, or `tensor` with its sizes (`49152x12288`, or one by one); without it, all
    formats are listed.
    """
    chosen = [formats.get(name) for name in names] or list(formats.known())
    match what:
        case ():
            rows = [formats.describe(fmt) for fmt in chosen]
            _answer(as_json, {"formats": [fmt.name for fmt in chosen]}, rows, (formats_table(rows),))
        case ("tensor", *sizes):
            shape = [parse_count(size) for size in _BETWEEN_SIZES.split(" ".join(sizes).strip()) if size]
            held = {fmt.name: formats.tensor_bytes(shape, fmt) for fmt in chosen}
            _answer(as_json, {"shape": shape}, {"bytes": held}, tensor_screen(shape, held, chosen))
        case (one,):
            _one(one, chosen, as_json)
        case _:
            raise click.UsageError(
                f"one number or one format is asked for at a time, not {len(what)}: {' '.join(what)}"
            )


def _one(text: str, chosen: list[formats.NumberFormat], as_json: bool) -> None:
    """A format where the text names one, a number otherwise."""
    try:
        row = formats.describe(text)
    except FormatError as no_format:
        try:
            rows = formats.explain_value(text, chosen)
        except FormatError as no_number:
            raise FormatError(f"neither a format nor a number. {no_format}. {no_number}") from None
        answer = [{name: getattr(each, name) for name in each.__slots__} for each in rows]
        _answer(as_json, {"number": text}, answer, value_screen(text, rows))
        return
    _answer(as_json, {"format": row["name"]}, row, format_screen(row))


def _answer(as_json: bool, question: dict[str, Any], answer: Any, screen: Any) -> None:
    if as_json:
        show_json("format", question, answer)
    else:
        show(screen)
