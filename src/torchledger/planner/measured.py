"""Tables of measured runs as questions: each row a model, a recipe, a strategy and a cluster, with what was measured.

A table is CSV with a header; its columns are `measured_cells.COLUMNS`. The least that a row tells: a model (a preset,
or its shape), `gpu`, `n_gpus`, `precision`, `seq`, `global_batch` and `micro_batch`, and one of `step_time_s`,
`tokens_per_s_per_gpu` and `memory_gib`; parallel sizes that are left out are 1, and `dp` is what they leave.

measured_cells.py      words of tables as words of recipes and strategies
measured_model.py      preset, model file or shape
measured_question.py   cluster, strategy, recipe, and what was measured
measured_facts.py      what a source says outside of its table, and what is assumed
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.measured_cells import Cells, column_of
from torchledger.planner.measured_facts import Basis, Facts, read_facts
from torchledger.planner.measured_model import model_of
from torchledger.planner.measured_question import cluster_of, measured_of, recipe_of, stack_of, strategy_of
from torchledger.spec import ModelSpec, Recipe, Strategy

#: What other programs write between columns.
_NOT_COMMAS = {";": "semicolons", "\t": "tabs", "|": "bars"}

Kind = Literal["dense", "mixture", "adapters", "fine-tuning"]


class MeasuredError(PlanError):
    """A table that cannot be read; one line of the message for every mistake, with its line in the file."""


@dataclass(frozen=True, slots=True)
class MeasuredRow:
    """One measured run.

    Attributes:
        spec, recipe, strategy, cluster: the question.
        step_s: seconds of a step; nothing where only memory was measured.
        peak_bytes: of the fullest chip; nothing where the row does not tell.
        is_out_of_memory: it did not run for want of memory.
        source: whose measurement it is.
        family: sources that share a stack and a cluster, left out together.
        quality: A, B or C as the collection marks it; empty where it does not.
        assumed: what the row does not tell and was assumed, `column: what and why`.
        by_recipe: columns filled from the recipe of the row's own release.
        by_assumption: columns filled by assumption alone.
        kind: `dense`, `mixture` (of experts), `adapters` (LoRA) or `fine-tuning`.
        notes: the row's own.
        link: where it is printed.
        place: file and line.
    """

    spec: ModelSpec
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster
    step_s: float | None
    peak_bytes: int | None
    is_out_of_memory: bool
    source: str
    family: str
    quality: str
    assumed: tuple[str, ...]
    by_recipe: tuple[str, ...] = ()
    by_assumption: tuple[str, ...] = ()
    kind: Kind = "dense"
    notes: str = ""
    link: str = ""
    place: str = ""

    @property
    def standing(self) -> Literal["stated", "recipe", "assumed"]:
        """How the row's layout and recompute are known: from its source, from its release's recipe, or assumed."""
        if self.by_assumption:
            return "assumed"
        return "recipe" if self.by_recipe else "stated"

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of the whole cluster."""
        return None if self.step_s is None else self.recipe.tokens_per_step / self.step_s


@dataclass(frozen=True, slots=True)
class Refused:
    """A row that is no question: where it stands, its source and model, and every reason."""

    place: str
    source: str
    model: str
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """A table as read: the rows that are questions, and those that are none."""

    rows: tuple[MeasuredRow, ...]
    refused: tuple[Refused, ...]


def read_rows(path: str | Path, facts: str | Path | None = None, *, planned: bool = False) -> tuple[MeasuredRow, ...]:
    """Every row of a table.

    Args:
        path: a CSV file.
        facts: a facts file (`measured_facts`) for what all rows of a source share.
        planned: whether rows that nobody measured yet are rows too.

    Raises:
        MeasuredError: with every mistake of the table at once, each with its line.
    """
    reading = read_table(path, facts, planned=planned)
    if reading.refused:
        lines = [f"{each.place}: {reason}" for each in reading.refused for reason in each.reasons]
        raise MeasuredError("\n".join(lines))
    return reading.rows


def read_table(path: str | Path, facts: str | Path | None = None, *, planned: bool = False) -> Reading:
    """A table with the rows that are no questions beside, each with its reasons.

    Raises:
        MeasuredError: the file cannot be read, has no rows, or a header that is no column.
        PlanError: a facts file with mistakes.
    """
    path = Path(path)
    told = Facts() if facts is None else read_facts(facts)
    rows: list[MeasuredRow] = []
    refused: list[Refused] = []
    for line, texts in _lines(path):
        folder = path.parent if facts is None else Path(facts).parent
        found = _row(texts, told, f"{path}:{line}", folder, planned=planned)
        if isinstance(found, Refused):
            refused.append(found)
        else:
            rows.append(found)
    return Reading(tuple(rows), tuple(refused))


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Line number and cells by column of every row."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            columns = _columns(header, path)
            rows = [(reader.line_num, cells) for cells in reader if any(cells)]
    except UnicodeDecodeError as error:
        raise MeasuredError(
            f"{path}: is no CSV: byte {error.start} is not UTF-8; save the table as UTF-8 text"
        ) from error
    except (OSError, csv.Error) as error:
        raise MeasuredError(f"{path}: {error}") from error
    if not rows:
        raise MeasuredError(f"{path}: no rows; the first line names columns, each further line is a run")
    wrong = [
        f"{path}:{line}: {len(cells)} cells, the header has {len(columns)}"
        for line, cells in rows
        if len(cells) != len(columns)
    ]
    if wrong:
        raise MeasuredError("\n".join(wrong))
    for line, cells in rows:
        yield line, {column: cell for column, cell in zip(columns, cells, strict=True) if column is not None}


def _columns(header: list[str], path: Path) -> list[str | None]:
    found: list[str | None] = []
    mistakes: list[str] = []
    if len(header) == 1 and (mark := next((each for each in _NOT_COMMAS if each in header[0]), None)):
        raise MeasuredError(f"{path}:1: columns are separated by {_NOT_COMMAS[mark]}; separate them by commas")
    for name in header:
        try:
            found.append(column_of(name))
        except KeyError as error:
            mistakes.append(f"{path}:1: {error.args[0]}")
    twice = sorted({name for name in found if name is not None and found.count(name) > 1})
    mistakes.extend(f"{path}:1: column {name!r} stands twice" for name in twice)
    if mistakes:
        raise MeasuredError("\n".join(mistakes))
    return found


def _row(texts: Mapping[str, str], facts: Facts, place: str, folder: Path, *, planned: bool) -> MeasuredRow | Refused:
    filled, used = facts.fill(texts)
    cells = Cells(filled)
    source = cells.text("source_id")
    stack_name, rules = stack_of(cells, folder)
    spec, assumed = model_of(cells, folder, rules.dropout)
    cluster, lesser = cluster_of(cells)
    strategy = strategy_of(cells, cluster, stack_name, rules)
    recipe = recipe_of(cells, strategy, spec, rules)
    step_s, peak, out = measured_of(cells, recipe, cluster, planned=planned)
    if cells.mistakes or spec is None or cluster is None or strategy is None or recipe is None:
        reasons = tuple(dict.fromkeys(f"{column}: {message}" for column, message in cells.mistakes))
        return Refused(place, source, cells.text("model"), reasons)

    def filled_by(basis: Basis) -> tuple[str, ...]:
        return tuple(column for column, fact in used if fact.basis == basis)

    by_facts = tuple(f"{column}: {filled[column]}, {fact.because}" for column, fact in used if fact.basis != "stated")
    return MeasuredRow(
        spec,
        recipe,
        strategy,
        cluster,
        step_s,
        peak,
        out,
        source,
        facts.family(source),
        cells.text("quality"),
        (*by_facts, *assumed, *lesser),
        filled_by("recipe"),
        filled_by("assumed"),
        _kind(cells, spec, recipe),
        cells.text("notes"),
        cells.text("source_link"),
        place,
    )


def _kind(cells: Cells, spec: ModelSpec, recipe: Recipe) -> Kind:
    if recipe.lora_rank:
        return "adapters"
    if cells.text("task") == "fine-tuning":
        return "fine-tuning"
    return "dense" if spec.moe is None else "mixture"
