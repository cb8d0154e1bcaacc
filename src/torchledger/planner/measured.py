"""Tables of measured runs as questions: each row a model, a recipe, a strategy and a cluster, with what was measured.

A table is CSV with a header; its columns are `measured_cells.COLUMNS`. The least that a row tells: a model (a preset,
or its shape), `gpu`, `n_gpus`, `precision`, `seq`, `global_batch` and `micro_batch`, and one of `step_time_s`,
`tokens_per_s_per_gpu` and `memory_gib`; parallel sizes that are left out are 1, and `dp` is what they leave.

measured_cells.py    words of tables as words of recipes and strategies
measured_model.py    preset, model file or shape
measured_facts.py    what a source says outside of its table, and what is assumed
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from torchledger.config import ConfigError
from torchledger.machine import Cluster, MachineError
from torchledger.machine import get as get_chip
from torchledger.machine.link import Link
from torchledger.planner.errors import PlanError
from torchledger.planner.measured_cells import Cells, column_of, precision_of, recompute_of, sharding_of
from torchledger.planner.measured_facts import Basis, Facts, read_facts
from torchledger.planner.measured_model import model_of
from torchledger.planner.stack import DEFAULT, Stack, stack
from torchledger.spec import ModelSpec, OptimizerSpec, Recipe, Strategy, recipe_mistakes, strategy_mistakes
from torchledger.spec.recipe import OptimizerKind
from torchledger.spec.strategy import ContextKind, Schedule

#: How far, as a share, a row's seconds and tokens per second may disagree; tables print three or four digits.
_AGREES = 0.02

_GIB = 1024**3
_GBIT = 1e9 / 8


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
    notes: str = ""
    link: str = ""
    place: str = ""

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


def read_rows(path: str | Path, facts: str | Path | None = None) -> tuple[MeasuredRow, ...]:
    """Every row of a table.

    Args:
        path: a CSV file.
        facts: a facts file (`measured_facts`) for what all rows of a source share.

    Raises:
        MeasuredError: with every mistake of the table at once, each with its line.
    """
    reading = read_table(path, facts)
    if reading.refused:
        lines = [f"{each.place}: {reason}" for each in reading.refused for reason in each.reasons]
        raise MeasuredError("\n".join(lines))
    return reading.rows


def read_table(path: str | Path, facts: str | Path | None = None) -> Reading:
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
        found = _row(texts, told, f"{path}:{line}", path.parent if facts is None else Path(facts).parent)
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
    except (OSError, UnicodeDecodeError, csv.Error) as error:
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


def _row(texts: Mapping[str, str], facts: Facts, place: str, folder: Path) -> MeasuredRow | Refused:
    filled, used = facts.fill(texts)
    cells = Cells(filled)
    source = cells.text("source_id")
    rules = _stack(cells)
    spec, assumed = model_of(cells, folder, rules.dropout)
    cluster, lesser = _cluster(cells)
    strategy = _strategy(cells, cluster, rules)
    recipe = _recipe(cells, strategy, spec, rules)
    step_s, peak, out = _measured(cells, recipe, cluster)
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
        cells.text("notes"),
        cells.text("source_link"),
        place,
    )


def _cluster(cells: Cells) -> tuple[Cluster | None, tuple[str, ...]]:
    number = cells.whole("n_gpus")
    for column in ("gpu", "n_gpus"):
        if not cells.has(column):
            cells.fail(column, "is missing")
    if number is None or not cells.has("gpu"):
        return None, ()
    try:
        cluster = Cluster.of(get_chip(cells.text("gpu")), number)
    except MachineError as error:
        cells.fail("gpu", str(error))
        return None, ()
    island, rate = cells.whole("island"), cells.number("network_gbit_s")
    if island is not None:
        cluster = replace(cluster, chips_per_island=island)
    if rate is not None:
        return replace(cluster, network=Link("as the row says", rate * _GBIT)), ()
    if cluster.num_islands > 1 and cluster.network is not None:
        return cluster, (f"network_gbit_s: {cluster.network.name}, typical of the chip",)
    return cluster, ()


def _stack(cells: Cells) -> Stack:
    """The row's stack; where it is missing or unknown (which is noted) the default's rules serve to read on."""
    name = cells.text("stack")
    if not name:
        cells.fail("stack", "is missing; `torchledger`, `megatron`, `fsdp2` ...")
        return stack(DEFAULT)
    try:
        return stack(name)
    except (PlanError, ConfigError, OSError) as error:
        cells.fail("stack", str(error))
        return stack(DEFAULT)


def _strategy(cells: Cells, cluster: Cluster | None, rules: Stack) -> Strategy | None:
    sizes = {column: cells.whole(column, 1) or 1 for column in ("tp", "pp", "cp", "ep")}
    if not cells.has("micro_batch"):
        cells.fail("micro_batch", "is missing")
    if cluster is None:
        return None
    chips = cluster.num_chips
    inner = sizes["tp"] * sizes["pp"] * sizes["cp"]
    if chips % inner:
        product = f"tp {sizes['tp']} x pp {sizes['pp']} x cp {sizes['cp']} = {inner}"
        cells.fail("n_gpus", f"{product} does not divide {chips} chips")
        return None
    ranks = cells.whole("dp", chips // inner)
    if ranks != chips // inner:
        cells.fail("dp", f"{ranks} x {inner} (tp x pp x cp) is not {chips} chips; {chips // inner} would be")
        return None
    text = cells.text("fsdp_zero")
    sharding = sharding_of(text or "none")
    if sharding is None:
        cells.fail("fsdp_zero", f"cannot tell what {text!r} shards; write none, ZeRO-1, ZeRO-2, ZeRO-3 or FULL_SHARD")
        return None
    level, group, reshard = sharding
    chunks = (cells.whole("vp", 1) or 1) if sizes["pp"] > 1 else 1
    group = cells.whole("shard_group", group, least=0) or 0
    strategy = Strategy(
        stack=cells.text("stack"),
        data_parallel=ranks,
        shard_level=level,
        shard_group=0 if group == ranks else group,
        reshard=reshard,
        tensor_parallel=sizes["tp"],
        sequence_parallel=cells.switch("sp", default=False) and sizes["tp"] > 1,
        pipeline_parallel=sizes["pp"],
        schedule=cast(
            "Schedule", cells.choice("schedule", get_args(Schedule), "interleaved" if chunks > 1 else "1f1b")
        ),
        virtual_stages=chunks,
        stage_layers=cells.numbers("stage_layers"),
        context_parallel=sizes["cp"],
        context_kind=cast("ContextKind", cells.choice("context_kind", get_args(ContextKind), "ring")),
        expert_parallel=sizes["ep"],
        expert_tensor_parallel=cells.whole("etp", 0, least=0) or 0,
        micro_batch_size=cells.whole("micro_batch", 0) or 0,
        overlap_data=cells.switch("overlap_data", default=rules.overlap_data),
        overlap_tensor=cells.switch("overlap_tensor", default=rules.overlap_tensor),
    )
    for path, message in strategy_mistakes(strategy):
        cells.fail("strategy", f"{path}: {message}")
    return strategy


def _recipe(cells: Cells, strategy: Strategy | None, spec: ModelSpec | None, rules: Stack) -> Recipe | None:
    batch, length = cells.whole("global_batch"), cells.whole("seq")
    for column in ("global_batch", "seq", "precision", "recompute"):
        if not cells.has(column):
            cells.fail(column, "is missing")
    precision = precision_of(cells.text("precision"))
    if precision is None and cells.has("precision"):
        cells.fail("precision", f"cannot tell what {cells.text('precision')!r} is")
    recompute = recompute_of(cells.text("recompute"))
    if recompute is None and cells.has("recompute"):
        cells.fail("recompute", f"expected none, selective or full, got {cells.text('recompute')!r}")
    if batch is None or length is None or strategy is None or precision is None or recompute is None:
        return None
    together = strategy.data_parallel * max(strategy.micro_batch_size, 1)
    if batch % together:
        size, ranks = strategy.micro_batch_size, strategy.data_parallel
        cells.fail("global_batch", f"dp {ranks} x micro_batch {size} = {together} does not divide {batch}")
        return None
    recipe = Recipe(
        batch_size=batch,
        sequence_length=length,
        precision=cast("Any", rules.precision(precision)),
        optimizer=OptimizerSpec(kind=cast("Any", cells.choice("optimizer", get_args(OptimizerKind), "adamw"))),
        accumulation_steps=batch // together,
        recompute=cast("Any", recompute),
        recompute_layers=cells.whole("recompute_layers", 0, least=0) or 0,
        attention=cast("Any", cells.choice("attention", ("math", "fused"), rules.attention)),
        offload_activations=cells.number("offload_activations") or 0.0,
        lora_rank=cells.whole("lora_rank", 0, least=0) or 0,
    )
    for path, message in recipe_mistakes(recipe, spec):
        cells.fail("recipe", f"{path}: {message}")
    return recipe


def _measured(cells: Cells, recipe: Recipe | None, cluster: Cluster | None) -> tuple[float | None, int | None, bool]:
    """Seconds of a step, bytes of the fullest chip, whether it ran out of memory."""
    out = cells.text("memory_gib").upper() == "OOM"
    gib = None if out else cells.number("memory_gib")
    seconds, rate = cells.number("step_time_s"), cells.number("tokens_per_s_per_gpu")
    if seconds is None and rate is None and gib is None and not out:
        cells.fail("step_time_s", "nothing was measured: give step_time_s, tokens_per_s_per_gpu or memory_gib")
    if rate is not None and recipe is not None and cluster is not None:
        by_rate = recipe.tokens_per_step / (rate * cluster.num_chips)
        if seconds is not None and abs(by_rate / seconds - 1) > _AGREES:
            cells.fail("step_time_s", f"{seconds:g} s, but {rate:g} tokens/s of each chip take {by_rate:.4g} s")
        seconds = by_rate if seconds is None else seconds
    return seconds, None if gib is None else round(gib * _GIB), out
