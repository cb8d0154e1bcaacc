"""One catalog file, read and checked: its rows and its chips."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchledger.machine.chip import Chip
from torchledger.machine.errors import BadRow
from torchledger.machine.row import mistakes_in, to_chip

# What a row that extends another must say for itself: the other row's source is no source for its changes.
_OWN_PROVENANCE = ("confidence", "date", "source", "notes")
_OWN_NAMES = ("name", "aliases")


@dataclass(frozen=True, slots=True)
class CatalogFile:
    """A catalog file.

    Attributes:
        rows: the tables as written, what they extend filled in, by key.
        chips: what they say, by key, in the file's order.
    """

    rows: Mapping[str, dict[str, Any]]
    chips: Mapping[str, Chip]


def read(path: Path, row_to_extend: Callable[[str], dict[str, Any] | None] = lambda _: None) -> CatalogFile:
    """Read one catalog file.

    Args:
        path: a TOML file: a table per chip, and a table `[file]` with the fields that all of them share.
        row_to_extend: gives the table of another file's row by its key, for rows with `extends`.

    Raises:
        BadRow: the file is no TOML, or rows have mistakes; `.mistakes` lists all of them.
        OSError: the file cannot be read.
    """
    tables = _tables(path)
    shared = tables.pop("file", {})
    mistakes = [] if isinstance(shared, dict) else [f"{path.name}: file: must be a table of what all rows share"]
    rows: dict[str, dict[str, Any]] = {}
    for key, row in tables.items() if not mistakes else ():
        if not isinstance(row, dict):
            mistakes.append(f"{path.name}: {key}: stands outside any [row]")
            continue
        extended, wrong = _extend(key, {**shared, **row}, lambda other: rows.get(other) or row_to_extend(other))
        wrong += mistakes_in(extended)
        mistakes += [f"{path.name}: [{key}] {each}" for each in wrong]
        rows[key] = extended
    if mistakes:
        raise BadRow(mistakes)
    chips = {key: to_chip(key, row, path.name) for key, row in rows.items()}
    return CatalogFile(rows, chips)


def _tables(path: Path) -> dict[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRow([f"{path.name}: is no TOML: {error}"]) from None


def _extend(
    key: str, row: dict[str, Any], find: Callable[[str], dict[str, Any] | None]
) -> tuple[dict[str, Any], list[str]]:
    """The row over the one that it extends, and what is wrong with that."""
    if "extends" not in row:
        return row, []
    own = {field: value for field, value in row.items() if field != "extends"}
    base = find(row["extends"]) if isinstance(row["extends"], str) else None
    if base is None:
        return own, [f"extends: no row has the key {row['extends']!r}"]
    same_chip = key == row["extends"]  # with another value: people go on calling it by its names
    left_out = _OWN_PROVENANCE if same_chip else _OWN_PROVENANCE + _OWN_NAMES
    inherited = {field: value for field, value in base.items() if field not in left_out}
    for field, value in own.items():
        both_tables = isinstance(value, dict) and isinstance(inherited.get(field), dict)
        inherited[field] = {**inherited[field], **value} if both_tables else value
    return inherited, []
