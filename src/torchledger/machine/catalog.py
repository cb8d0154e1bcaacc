"""The catalog: every chip that the data files have, and those of the user's own files before them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any

from torchledger.machine.catalog_file import CatalogFile, read
from torchledger.machine.chip import Chip
from torchledger.machine.index import DATA, names_to_rows, read_index


class Catalog:
    """Chips by name. Files of the package are read when one of their chips is asked for.

    Make one with `load`, or take the package's own with `builtin`.

    Args:
        own: the user's files, later ones over earlier ones.
    """

    __slots__ = ("_index", "_own_chips", "_own_names")

    def __init__(self, own: Sequence[CatalogFile] = ()) -> None:
        self._index = read_index()
        self._own_chips: dict[str, Chip] = {}
        self._own_names: dict[str, Chip] = {}
        for file in own:
            self._own_chips |= file.chips
            self._own_names |= names_to_rows(file.chips.values())

    def named(self, joined_name: str) -> Chip | None:
        """The chip that has exactly this name, written without anything between its words; None if none has."""
        if own := self._own_names.get(joined_name):
            return self._own_chips[own.key]
        if place := self._index.get(joined_name):
            file, key = place
            return self._own_chips.get(key) or _builtin_file(file).chips[key]
        return None

    def family(self, chip: Chip) -> tuple[Chip, ...]:
        """The chips that people call by the same name, this one included."""
        return tuple(each for each in self.chips() if each.family == chip.family)

    def names(self) -> tuple[str, ...]:
        """Every name without anything between its words, the user's own first."""
        return tuple({**self._own_names, **self._index})

    def chips(self) -> tuple[Chip, ...]:
        """Every chip, the user's own first, then file by file."""
        everybody = dict(self._own_chips)
        for path in _builtin_paths():
            for key, chip in _builtin_file(path.name).chips.items():
                everybody.setdefault(key, chip)
        return tuple(everybody.values())


@cache
def builtin() -> Catalog:
    """The package's own catalog."""
    return Catalog()


def load(extra_files: Sequence[str | PathLike[str]] = ()) -> Catalog:
    """The catalog with the user's own files before the package's.

    A row of a user's file has the fields of the package's files. `extends = "h100-sxm"` takes what it does not say
    from another row, but never its names, source, date, confidence and notes. A row with the key of a row that is
    here replaces it and answers to its names. A name that both have is the user's.

        [h100-capped]
        extends = "h100-sxm"
        name = "H100 capped at 500 W"
        aliases = ["our h100"]
        tdp_w = 500
        measured.bf16 = 700e12
        measured_source = "our own matmul"
        confidence = "medium"
        date = "2026-12-01"
        source = "https://example.com/our-cluster"
        notes = ""

    Args:
        extra_files: TOML files, later ones over earlier ones.

    Raises:
        BadRow: a file has mistakes; `.mistakes` lists all of them.
        OSError: a file cannot be read.
    """
    earlier: dict[str, dict[str, Any]] = {}

    def row_to_extend(key: str) -> dict[str, Any] | None:
        return earlier.get(key) or _builtin_row(key)

    own = []
    for path in map(Path, extra_files):
        own.append(read(path, row_to_extend))
        earlier |= own[-1].rows
    return Catalog(own)


def list_chips(catalog: Catalog | None = None) -> tuple[Chip, ...]:
    """Every chip of the catalog: the user's own first, then file by file."""
    return (catalog or builtin()).chips()


def _builtin_paths() -> list[Path]:
    return sorted(DATA.glob("*.toml"))


@cache
def _builtin_file(name: str) -> CatalogFile:
    return read(DATA / name)


def _builtin_row(key: str) -> dict[str, Any] | None:
    return next((row for path in _builtin_paths() if (row := _builtin_file(path.name).rows.get(key))), None)
