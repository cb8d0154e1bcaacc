"""`Facts`: what a source says about all of its rows outside of the table, and what has to be assumed; a TOML file.

```toml
[source."llm-foundry"]
family = "llm-foundry"                # left out together when a baseline or a calibration leaves a source out
[[source."llm-foundry".fact]]
kind = "stated"                       # stated, recipe (the release's own recipe says it), assumed or corrected
set = { stack = "fsdp1" }             # columns of the table; only `corrected` replaces a cell that is filled
where = { gpu = ["H100 SXM 80GB"] }   # rows whose cells are one of these; left out: all rows of the source
because = "why, and where it stands"
```
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from torchledger.planner.errors import PlanError
from torchledger.planner.measured_cells import COLUMNS, Cells

Basis = Literal["stated", "recipe", "assumed", "corrected"]


@dataclass(frozen=True, slots=True)
class Fact:
    """Cells for the rows of a source.

    Attributes:
        basis: `stated` by the source; `recipe`: by the recipe of the same release; `assumed`; or `corrected`, which
            replaces what the table prints.
        cells: text by column.
        where: by column the texts of which a row must have one.
        because: why.
    """

    basis: Basis
    cells: Mapping[str, str]
    where: Mapping[str, tuple[str, ...]]
    because: str

    def meets(self, row: Mapping[str, str]) -> bool:
        """Whether the fact is about this row."""
        return all(row.get(column, "").strip() in texts for column, texts in self.where.items())


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts by source; `families` names the family of a source, itself where none is told."""

    by_source: Mapping[str, tuple[Fact, ...]] = field(default_factory=dict)
    families: Mapping[str, str] = field(default_factory=dict)

    def fill(self, row: Mapping[str, str]) -> tuple[dict[str, str], tuple[tuple[str, Fact], ...]]:
        """The row with the facts of its source, and which column was filled by which fact. The first fact wins."""
        filled = dict(row)
        used: list[tuple[str, Fact]] = []
        for fact in self.by_source.get(row.get("source_id", "").strip(), ()):
            if not fact.meets(row):
                continue
            for column, text in fact.cells.items():
                if fact.basis == "corrected" or not Cells(filled).has(column):
                    filled[column] = text
                    used.append((column, fact))
        return filled, tuple(used)

    def family(self, source: str) -> str:
        """The family of a source."""
        return self.families.get(source, source)


def read_facts(path: str | Path) -> Facts:
    """Read a facts file.

    Raises:
        PlanError: with every mistake in it.
    """
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise PlanError(f"{path}: {error}") from error
    mistakes: list[str] = []
    sources: Mapping[str, Any] = data.get("source", {})
    facts = {
        name: tuple(
            _fact(each, f"{name}, fact {number}", mistakes) for number, each in enumerate(told.get("fact", ()), 1)
        )
        for name, told in sources.items()
    }
    if mistakes:
        raise PlanError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    families = {name: str(told["family"]) for name, told in sources.items() if "family" in told}
    return Facts(facts, families)


def _fact(told: Mapping[str, Any], place: str, mistakes: list[str]) -> Fact:
    basis = told.get("kind", "assumed")
    if basis not in get_args(Basis):
        mistakes.append(f"{place}: kind is one of {', '.join(get_args(Basis))}, not {basis!r}")
    if not told.get("because"):
        mistakes.append(f"{place}: says no `because`")
    unknown = [column for column in (*told.get("set", {}), *told.get("where", {})) if column not in COLUMNS]
    mistakes.extend(f"{place}: no column is called {column!r}" for column in unknown)
    cells = {column: _text(value) for column, value in told.get("set", {}).items()}
    where = {
        column: tuple(map(_text, value if isinstance(value, list) else [value]))
        for column, value in told.get("where", {}).items()
    }
    return Fact(basis, cells, where, str(told.get("because", "")))


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
