"""What can be wrong with a question about machines.

MachineError (a ValueError)
├── UnknownChip     no row has this name, or several do
├── UnknownFact     the row lacks the fact that was asked for; names the row and its file
│   └── NoPeak      the chip has no peak in this number format
├── BadCluster      the text names no cluster
└── BadRow          a catalog file has mistakes; `.mistakes` lists all of them
"""

from __future__ import annotations

from collections.abc import Sequence


class MachineError(ValueError):
    """A question about a machine that the catalog cannot answer."""


class UnknownChip(MachineError):
    """No row of the catalog has this name, or several fit it.

    Attributes:
        name: what was asked for.
        close: names of the catalog that are spelled alike, nearest first.
    """

    def __init__(self, name: str, close: Sequence[str], candidates: Sequence[str] = ()) -> None:
        self.name = name
        self.close = tuple(close)
        if candidates:
            what = f"{name!r} fits several chips: {', '.join(candidates)}; say which"
        else:
            near = f"; close names: {', '.join(close)}" if close else ""
            what = f"no chip is named {name!r}{near}"
        super().__init__(
            f"{what}. To add one, write a row in a TOML file of your own (`extends` takes the rest from a row that is"
            " here) and give it with --catalog FILE; in Python, `machine.load([FILE])`"
        )


class UnknownFact(MachineError):
    """The row lacks the fact that was asked for."""

    def __init__(self, row: str, file: str, field: str) -> None:
        self.row = row
        self.field = field
        super().__init__(
            f"{field} of {row} is unknown: the row in {file} has none; add it there or in a file of your own"
        )


class NoPeak(UnknownFact):
    """The chip has no peak in this number format: it cannot run it, or the row does not say."""

    def __init__(self, row: str, file: str, number_format: str, has: Sequence[str], *, lacks: bool) -> None:
        self.row = row
        self.field = f"dense.{number_format}"
        self.has = tuple(has)
        why = (
            f"{row} does not run {number_format}"
            if lacks
            else f"no peak for {number_format} is known of {row} ({file})"
        )
        MachineError.__init__(self, f"{why}; it has {', '.join(has) if has else 'no peak at all'}")


class BadCluster(MachineError):
    """The text names no cluster."""


class BadRow(MachineError):
    """A catalog file has mistakes.

    Attributes:
        mistakes: every one of them, as "file: [row] field: what is wrong".
    """

    def __init__(self, mistakes: Sequence[str]) -> None:
        self.mistakes = tuple(mistakes)
        super().__init__("\n".join(mistakes))
