"""Screens as rich draws them on a terminal. Only this file knows rich, and it is loaded only for a terminal."""

from __future__ import annotations

import io

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from torchledger.view.layout import lay_out
from torchledger.view.screen import Bars, Block, Facts, Lines, Screen, Table
from torchledger.view.style import Style, shown
from torchledger.view.terminal import BAR_WIDTH, bar

_SHORTEST_BAR = 5
_ROW_STYLES = {"": "", "total": "bold", "bad": "bold red", "good": "green"}
_LINE_STYLES = {"": "", "note": "dim", "warning": "bold yellow", "code": "", "headline": "bold"}


def _text(text: str, style: str = "", *, fixed: bool = False) -> Text:
    """A text as it is: no markup, no control codes; a fixed one is cropped rather than folded."""
    return Text(shown(text), style=style, no_wrap=fixed, overflow="crop" if fixed else None)


def draw_pretty(screen: Screen, style: Style) -> str:
    """The screen as text with boxes, and with colours where the style has them."""
    console = Console(
        file=io.StringIO(),
        width=style.width,
        force_terminal=True,
        color_system="standard" if style.color else None,
        legacy_windows=False,
        highlight=False,
        emoji=False,
        markup=False,
        no_color=not style.color,
    )
    for index, block in enumerate(screen):
        if index:
            console.print()
        console.print(_titled(block, style.width))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _titled(block: Block, width: int) -> RenderableType:
    body = _body(block, width)
    return Group(_text(block.title, "bold cyan"), body) if block.title else body


def _body(block: Block, width: int) -> RenderableType:
    match block:
        case Table():
            return _table(block, width)
        case Bars():
            return _bars(block, width)
        case Facts():
            grid = _grid()
            for name, value in block.pairs:
                grid.add_row(_text(name, "dim"), _text(value))
            return grid
        case Lines():
            text = _text("\n".join(block.lines), _LINE_STYLES[block.mark])
            return Padding(text, (0, 0, 0, 2)) if block.title else text


def _grid() -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _table(table: Table, width: int) -> RenderableType:
    lines, hidden = lay_out(table, width)
    heads = sum(line.part == "head" for line in lines)
    rule = "─" * min(width, max((len(line.text) for line in lines), default=0))
    drawn: list[RenderableType] = [_text(line.text, "bold", fixed=True) for line in lines[:heads]]
    drawn.append(_text(rule, "dim"))
    for line in lines[heads:]:
        style = "dim" if line.part == "below" and not line.mark else _ROW_STYLES[line.mark]
        drawn.append(_text(line.text, style, fixed=True))
    if table.note:
        drawn.append(_text(table.note, "dim"))
    if hidden:
        drawn.append(_text(f"not shown for want of width: {', '.join(hidden)}", "dim"))
    return Group(*drawn)


def _bars(bars: Bars, width: int) -> RenderableType:
    """Label, bar and value side by side; on a narrow terminal the bar gives way."""
    labels = max((len(each.label) for each in bars.bars), default=0)
    texts = max((len(each.text) for each in bars.bars), default=0)
    room = min(BAR_WIDTH, max(_SHORTEST_BAR, width - labels - texts - 4))
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in bars.bars:
        color = "red" if each.share > 1 else "cyan"
        grid.add_row(_text(each.label), _text(bar(each.share, room), color), _text(each.text))
    return Group(grid, _text(bars.note, "dim")) if bars.note else grid
