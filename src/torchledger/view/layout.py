"""A table laid out in lines of text: columns aligned, and made to fit a width where one is given.

In a pipe nothing is left out. On a terminal that is too narrow, first the columns that the table calls optional go,
then trailing columns of prose move below their row, and at last titles above numbers and the widest columns of text are
folded.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from torchledger.view.screen import Table, tree_branches

_GAP = "  "
_INDENT = 4
_NARROWEST = 12


@dataclass(frozen=True, slots=True)
class Laid:
    """One line of a laid-out table.

    Attributes:
        text: the line.
        part: `head`, `row`, or `below` for prose that stands under its row.
        mark: the row's.
    """

    text: str
    part: str
    mark: str = ""


@dataclass(frozen=True, slots=True)
class _Fit:
    """A table made narrower: what is left, what was hidden, and which columns stand below their row."""

    table: Table
    hidden: tuple[str, ...] = ()
    num_below: int = 0


def lay_out(table: Table, width: int | None = None) -> tuple[list[Laid], tuple[str, ...]]:
    """The table as lines, and the titles of columns that were left out for want of width.

    Args:
        table: what to lay out.
        width: columns of the terminal; nothing lets lines be as long as they are.
    """
    fit = _fit(table, width)
    columns = len(fit.table.columns) - fit.num_below
    rows = [cells[:columns] for cells in tree_cells(fit.table)]
    widths = _widths(fit.table, [fit.table.titles[:columns], *rows], width)
    lines = [Laid(text, "head") for text in _aligned(fit.table, fit.table.titles[:columns], widths)]
    for row, cells in zip(fit.table.rows, rows, strict=True):
        lines += (Laid(text, "row", row.mark) for text in _aligned(fit.table, cells, widths))
        for prose in row.cells[columns:]:
            folded = textwrap.wrap(prose, (width or 100) - _INDENT, break_on_hyphens=False)
            lines += (Laid(" " * _INDENT + text, "below", row.mark) for text in folded)
    return lines, fit.hidden


def tree_cells(table: Table) -> list[tuple[str, ...]]:
    """The rows' cells, the first one with its branches of the tree."""
    branches = tree_branches([row.depth for row in table.rows])
    return [(branch + row.cells[0], *row.cells[1:]) for branch, row in zip(branches, table.rows, strict=True)]


def _fit(table: Table, width: int | None) -> _Fit:
    fit = _Fit(table)
    if width is None:
        return fit
    for title in table.optional:
        if _natural_width(fit) <= width:
            return fit
        fit = _Fit(_without(fit.table, title), (*fit.hidden, title))
    while _natural_width(fit) > width and _ends_in_prose(fit):
        fit = replace(fit, num_below=fit.num_below + 1)
    return fit


def _natural_width(fit: _Fit) -> int:
    columns = len(fit.table.columns) - fit.num_below
    rows = [fit.table.titles, *tree_cells(fit.table)]
    return sum(max(len(row[index]) for row in rows) for index in range(columns)) + len(_GAP) * (columns - 1)


def _ends_in_prose(fit: _Fit) -> bool:
    """Whether the last column that is left may stand below its row."""
    last = len(fit.table.columns) - fit.num_below - 1
    return last >= 2 and fit.table.is_left(last) and max((len(r.cells[last]) for r in fit.table.rows), default=0) >= 16


def _without(table: Table, title: str) -> Table:
    index = table.titles.index(title)
    rows = tuple(replace(row, cells=_all_but(row.cells, index)) for row in table.rows)
    return replace(table, columns=_all_but(table.columns, index), rows=rows, optional=())


def _all_but(cells: tuple[str, ...], index: int) -> tuple[str, ...]:
    return (*cells[:index], *cells[index + 1 :])


def _widths(table: Table, rows: Sequence[Sequence[str]], width: int | None) -> list[int]:
    """Width of each column; where all are too wide, titles of numbers fold, then the widest column of text does."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - (width or 10**9)
    for index in range(len(widths)):
        if excess > 0 and not table.is_left(index):  # a number is never cut
            whole = [*rows[0][index].split(), *(row[index] for row in rows[1:])]
            give = min(excess, widths[index] - max(map(len, whole), default=0))
            widths[index] -= give
            excess -= give
    while excess > 0:
        texts = [index for index in range(len(widths)) if table.is_left(index) and widths[index] > _NARROWEST]
        if not texts:
            break
        widest = max(texts, key=lambda index: widths[index])
        give = min(excess, widths[widest] - _NARROWEST)
        widths[widest] -= give
        excess -= give
    return widths


def _aligned(table: Table, cells: Sequence[str], widths: Sequence[int]) -> Iterator[str]:
    """One row in as many lines as its most folded cell needs."""
    folded = [
        textwrap.wrap(cell, width, break_on_hyphens=False, drop_whitespace=False) if len(cell) > width else [cell]
        for cell, width in zip(cells, widths, strict=True)
    ]
    for number in range(max(len(parts) for parts in folded)):
        texts = [parts[number] if number < len(parts) else "" for parts in folded]
        padded = (
            text.ljust(width) if table.is_left(index) else text.strip().rjust(width)
            for index, (text, width) in enumerate(zip(texts, widths, strict=True))
        )
        yield _GAP.join(padded).rstrip()
