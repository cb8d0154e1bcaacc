"""The index of names: which file and row an alias stands for, so that asking for one chip reads one small file.

Parsing all of the catalog takes some ten times as long as one file of it. The index is a plain text file made from
the TOML files; a test fails when it is stale, and its first line says how to make it anew.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from torchledger.machine.catalog_file import read
from torchledger.machine.chip import Chip
from torchledger.machine.errors import BadRow
from torchledger.machine.spelling import joined

DATA = Path(__file__).parent / "data"
INDEX_FILE = DATA / "index.txt"

_HEADER = (
    "# alias, file, row. Made from the TOML files: python -c"
    " 'from torchledger.machine import index; index.INDEX_FILE.write_text(index.index_text())'\n"
)


def names_of(chip: Chip) -> Iterable[str]:
    """Everything a chip is called: its key, its name and its aliases."""
    return (chip.key, chip.name, *chip.aliases)


def names_to_rows(chips: Iterable[Chip]) -> dict[str, Chip]:
    """Every joined name and its chip.

    Raises:
        BadRow: two rows have one name.
    """
    found: dict[str, Chip] = {}
    mistakes = []
    for chip in chips:
        for name in names_of(chip):
            other = found.setdefault(joined(name), chip)
            if other is not chip:
                mistakes.append(f"{chip.file}: [{chip.key}] aliases: {name!r} is already a name of [{other.key}]")
    if mistakes:
        raise BadRow(mistakes)
    return found


def index_text() -> str:
    """The index's text, made from the TOML files."""
    chips = [chip for path in sorted(DATA.glob("*.toml")) for chip in read(path).chips.values()]
    found = names_to_rows(chips)
    return _HEADER + "".join(f"{name}\t{chip.file}\t{chip.key}\n" for name, chip in found.items())


def read_index() -> Mapping[str, tuple[str, str]]:
    """Joined name -> (file, key), as the index has it."""
    lines = INDEX_FILE.read_text(encoding="utf-8").splitlines()[1:]
    rows = (line.split("\t") for line in lines)
    return {name: (file, key) for name, file, key in rows}
