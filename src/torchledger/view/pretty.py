"""Screens as rich draws them on a terminal. Only this file knows rich, and it is loaded only for a terminal."""

from __future__ import annotations

import io

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from torchledger.view.screen import Bars, Block, Facts, Lines, Screen, Table
from torchledger.view.style import Style
from torchledger.view.terminal import bar, tree_cells

_ROW_STYLES = {"": "", "total": "bold", "bad": "bold red", "good": "green"}
_LINE_STYLES = {"": "", "note": "dim", "warning": "bold yellow", "code": "", "headline": "bold"}


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
        console.print(_titled(block))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]  # it is the StringIO above
    return "\n".join(line.rstrip() for line in text.splitlines()) + "\n"


def _titled(block: Block) -> RenderableType:
    body = _body(block)
    return Group(Text(block.title, style="bold cyan"), body) if block.title else body


def _body(block: Block) -> RenderableType:
    match block:
        case Table():
            return _table(block)
        case Bars():
            return _bars(block)
        case Facts():
            grid = _grid()
            for name, value in block.pairs:
                grid.add_row(Text(name, style="dim"), Text(value))
            return grid
        case Lines():
            text = Text("\n".join(block.lines), style=_LINE_STYLES[block.mark])
            return Padding(text, (0, 0, 0, 2)) if block.title else text


def _grid() -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid


def _table(table: Table) -> RenderableType:
    drawn = RichTable(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold", padding=(0, 1))
    for index, title in enumerate(table.titles):
        left = table.is_left(index)
        drawn.add_column(
            Text(title), justify="left" if left else "right", no_wrap=not left, overflow="fold" if left else "ellipsis"
        )
    for row, cells in zip(table.rows, tree_cells(table), strict=True):
        if row.mark == "total":
            drawn.add_section()
        drawn.add_row(*(Text(cell) for cell in cells), style=_ROW_STYLES[row.mark])
    return Group(drawn, Text(table.note, style="dim")) if table.note else drawn


def _bars(bars: Bars) -> RenderableType:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for each in bars.bars:
        color = "red" if each.share > 1 else "cyan"
        grid.add_row(Text(each.label), Text(bar(each.share), style=color), Text(each.text))
    return Group(grid, Text(bars.note, style="dim")) if bars.note else grid
