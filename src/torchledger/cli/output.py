"""Where an answer goes: a screen in the style that stdout can show, or JSON; notes go to stderr."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO, TypeVar

import click

from torchledger.view.screen import Screen
from torchledger.view.style import Style
from torchledger.view.terminal import draw

Function = TypeVar("Function", bound=Callable[..., Any])

#: `--json`, the same on every command.
json_option = click.option(
    "--json", "as_json", is_flag=True, help="The answer as JSON, full numbers, versioned schema."
)


def show(screen: Screen) -> None:
    """Print a screen on stdout."""
    click.echo(draw(screen, style_of(sys.stdout, os.environ, no_color=_flag("no_color"))), nl=False, color=True)


def show_json(command: str, question: Mapping[str, Any], answer: Any, assumptions: Iterable[str] = ()) -> None:
    """Print an answer as JSON: `{schema, question, answer, assumptions}`. What is not finite is null."""
    import json

    from torchledger.view.record import plain

    document = {
        "schema": f"torchledger.{command}/1",
        "question": question,
        "answer": answer,
        "assumptions": list(dict.fromkeys(assumptions)),
    }
    click.echo(json.dumps(plain(document), indent=2, allow_nan=False, default=str))


def note(text: str) -> None:
    """Tell the user something beside the answer, on stderr; nothing under `--quiet`, or where nobody reads any more."""
    if not _flag("quiet"):
        with contextlib.suppress(OSError):
            click.echo(text, err=True)


def style_of(stream: TextIO, environment: Mapping[str, str], *, no_color: bool = False) -> Style:
    """What a stream can show.

    Boxes and colours only on a terminal; `NO_COLOR` (https://no-color.org) and `--no-color` take the colours,
    `TERM=dumb` the boxes too, `FORCE_COLOR` gives both to a pipe; `COLUMNS` sets the width. ASCII where the encoding
    cannot show more.
    """
    forced = bool(environment.get("FORCE_COLOR"))
    terminal = stream.isatty() and environment.get("TERM") != "dumb"
    rich = terminal or forced
    color = rich and not no_color and not environment.get("NO_COLOR")
    return Style(rich, color, _shows_unicode(stream), shutil.get_terminal_size((100, 24)).columns)


def _shows_unicode(stream: TextIO) -> bool:
    try:
        "█░├─·×µ".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def terminal_width() -> int | None:
    """Columns of the terminal that stdout is; nothing in a pipe, where lines may be as long as they are."""
    style = style_of(sys.stdout, os.environ)
    return style.width if style.rich else None


def is_quiet() -> bool:
    """Whether the user wants the answer and nothing else."""
    return _flag("quiet")


def _flag(name: str) -> bool:
    ctx = click.get_current_context(silent=True)
    return bool(ctx and isinstance(ctx.obj, dict) and ctx.obj.get(name))
