"""Screens as HTML fragments. Every text is escaped here and nowhere else; trees fold, bars are CSS, no script."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from torchledger.view.screen import Bars, Block, Facts, Lines, Row, Screen, Table


def fragment(screen: Screen) -> str:
    """The blocks one after the other."""
    return "\n".join(_block(block) for block in screen)


def _block(block: Block) -> str:
    title = f"<h3>{escape(block.title)}</h3>" if block.title else ""
    match block:
        case Table():
            return title + _table(block)
        case Bars():
            return title + _bars(block)
        case Facts():
            rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in block.pairs)
            return f'{title}<dl class="facts">{rows}</dl>'
        case Lines():
            return title + _lines(block)


def _lines(lines: Lines) -> str:
    mark = lines.mark or "plain"
    if lines.mark == "code":
        return f"<pre>{escape(chr(10).join(lines.lines))}</pre>"
    return "".join(f'<p class="{mark}">{escape(line)}</p>' for line in lines.lines)


def _table(table: Table) -> str:
    head = "".join(
        f'<th scope="col"{_align(table, index)}>{escape(title)}</th>' for index, title in enumerate(table.titles)
    )
    body = "".join(_rows(table))
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{note}'


def _rows(table: Table) -> Iterator[str]:
    for row in table.rows:
        mark = f' class="{row.mark}"' if row.mark else ""
        yield f"<tr{mark}>{''.join(_cells(table, row))}</tr>"


def _cells(table: Table, row: Row) -> Iterator[str]:
    for index, cell in enumerate(row.cells):
        indent = f' style="padding-left:{0.6 + 1.2 * row.depth:.1f}em"' if index == 0 and row.depth else ""
        yield f"<td{_align(table, index)}{indent}>{escape(cell)}</td>"


def _align(table: Table, index: int) -> str:
    return "" if table.is_left(index) else ' class="number"'


def _bars(bars: Bars) -> str:
    rows = "".join(
        f'<div class="label">{escape(each.label)}</div>'
        f'<div class="track"><div class="{"over" if each.share > 1 else "fill"}"'
        f' style="width:{min(max(each.share, 0), 1) * 100:.2f}%"></div></div>'
        f"<div>{escape(each.text)}</div>"
        for each in bars.bars
    )
    note = f'<p class="note">{escape(bars.note)}</p>' if bars.note else ""
    return f'<div class="bars">{rows}</div>{note}'
