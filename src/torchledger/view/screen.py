"""What a screen shows, before anybody decides how: blocks of texts, drawn alike by terminal, pipe and page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table.

    Attributes:
        cells: texts, one a column.
        depth: how deep it stands in a tree, 0 for no tree or its roots.
        mark: `total` closes a table, `bad` is beyond its tolerance, `good` within.
    """

    cells: tuple[str, ...]
    depth: int = 0
    mark: Literal["", "total", "bad", "good"] = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes:
        columns: titles; a title that starts with `<` is left-aligned, all others are right-aligned.
        rows: its rows.
        title: what it shows; may be empty.
        note: printed below it.
        optional: titles of columns that a narrow terminal may leave out, the first to go first.
    """

    columns: tuple[str, ...]
    rows: tuple[Row, ...]
    title: str = ""
    note: str = ""
    optional: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert all(len(row.cells) == len(self.columns) for row in self.rows), "a row has another number of cells"

    @property
    def titles(self) -> tuple[str, ...]:
        """The titles without their alignment."""
        return tuple(column.removeprefix("<") for column in self.columns)

    def is_left(self, index: int) -> bool:
        """Whether a column is left-aligned."""
        return self.columns[index].startswith("<")


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar: its label, its length as a share of the longest possible, and its value as text."""

    label: str
    share: float
    text: str


@dataclass(frozen=True, slots=True)
class Bars:
    """Bars under one title."""

    bars: tuple[Bar, ...]
    title: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """Named values, one a line: `peak memory   2.25 GiB`."""

    pairs: tuple[tuple[str, str], ...]
    title: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of text.

    Attributes:
        lines: as they are.
        title: above them; may be empty.
        mark: `note` is subdued, `warning` stands out, `code` keeps its spaces, `headline` is the answer in one line.
    """

    lines: tuple[str, ...]
    title: str = ""
    mark: Literal["", "note", "warning", "code", "headline"] = ""


Block: TypeAlias = Table | Bars | Facts | Lines
Screen: TypeAlias = Sequence[Block]


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, title: str = "", note: str = "") -> Table:
    """A table of plain rows."""
    return Table(tuple(columns), tuple(Row(tuple(cells)) for cells in rows), title, note)


def assumed(assumptions: Iterable[str]) -> tuple[Block, ...]:
    """The assumptions under an answer, as one block or none."""
    lines = tuple(dict.fromkeys(assumptions))
    return (Lines(lines, "assumes", "note"),) if lines else ()


def tree_branches(depths: Sequence[int]) -> tuple[str, ...]:
    """The branches that stand before each row of a tree, given how deep each row is.

    >>> tree_branches([0, 1, 2, 1])
    ('', '├─ ', '│  └─ ', '└─ ')
    """
    branches = []
    for index, depth in enumerate(depths):
        parts = []
        for level in range(1, depth + 1):
            goes_on = _goes_on(depths, index, level)
            if level == depth:
                parts.append("├─ " if goes_on else "└─ ")
            else:
                parts.append("│  " if goes_on else "   ")
        branches.append("".join(parts))
    return tuple(branches)


def _goes_on(depths: Sequence[int], index: int, level: int) -> bool:
    """Whether another row of this level follows under the same parent."""
    for depth in depths[index + 1 :]:
        if depth < level:
            return False
        if depth == level:
            return True
    return False
