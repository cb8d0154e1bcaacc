"""A row's cells as a question: its cluster, strategy and recipe, and what was measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast, get_args

from torchledger.config import ConfigError
from torchledger.machine import Cluster, MachineError, named_cluster
from torchledger.machine import get as get_chip
from torchledger.machine.link import Link
from torchledger.planner.errors import PlanError
from torchledger.planner.measured_cells import Cells, precision_of, recompute_of, sharding_of
from torchledger.planner.stack import DEFAULT, Stack, stack
from torchledger.spec import ModelSpec, OptimizerSpec, Recipe, Strategy, recipe_mistakes, strategy_mistakes
from torchledger.spec.recipe import OptimizerKind, Precision
from torchledger.spec.strategy import ContextKind, Schedule

#: How far, as a share, a row's seconds and tokens per second may disagree; tables print three or four digits.
_AGREES = 0.02

_GIB = 1024**3
_GBIT = 1e9 / 8


def cluster_of(cells: Cells) -> tuple[Cluster | None, tuple[str, ...]]:
    """The row's chips and how they are joined, and what was assumed of it."""
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
    if cells.has("cluster"):
        try:
            known = named_cluster(cells.text("cluster"), number)
        except MachineError as error:
            cells.fail("cluster", str(error))
            return None, ()
        own = cells.whole("island") or known.chips_per_island
        return replace(known, chip=cluster.chip, chips_per_island=own), ()
    island, rate = cells.whole("island"), cells.number("network_gbit_s")
    if island is not None:
        cluster = replace(cluster, chips_per_island=island)
    if rate is not None:
        return replace(cluster, network=Link("as the row says", rate * _GBIT)), ()
    if cluster.num_islands > 1 and cluster.network is not None:
        return cluster, (f"network_gbit_s: {cluster.network.name}, typical of the chip",)
    return cluster, ()


def stack_of(cells: Cells, folder: Path) -> tuple[str, Stack]:
    """The row's stack and its name; where it is missing or unknown (which is noted) the default's serves to read on."""
    name = cells.text("stack")
    if ".toml" in name:
        name = str(folder / name)
    if not name:
        cells.fail("stack", "is missing; `torchledger`, `megatron`, `fsdp2` ...")
        return DEFAULT, stack(DEFAULT)
    try:
        return name, stack(name)
    except (PlanError, ConfigError, OSError) as error:
        cells.fail("stack", str(error))
        return DEFAULT, stack(DEFAULT)


def strategy_of(cells: Cells, cluster: Cluster | None, name: str, rules: Stack) -> Strategy | None:
    """The row's layout; nothing where it cannot be one."""
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
        stack=name,
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


def recipe_of(cells: Cells, strategy: Strategy | None, spec: ModelSpec | None, rules: Stack) -> Recipe | None:
    """The row's recipe; nothing where it cannot be one."""
    batch, length = cells.whole("global_batch"), cells.whole("seq")
    for column in ("global_batch", "seq", "precision", "recompute"):
        if not cells.has(column):
            cells.fail(column, "is missing")
    precision = precision_of(cells.text("precision"))
    if precision is None and cells.has("precision"):
        known = ", ".join(get_args(Precision))
        cells.fail("precision", f"cannot tell what {cells.text('precision')!r} is; it is one of {known}")
    recompute = recompute_of(cells.text("recompute"))
    if recompute is None and cells.has("recompute"):
        cells.fail("recompute", f"expected none, selective or full, got {cells.text('recompute')!r}")
    if batch is None or length is None or strategy is None or precision is None or recompute is None:
        return None
    if not strategy.micro_batch_size:
        return None
    together = strategy.data_parallel * strategy.micro_batch_size
    if batch % together:
        size, ranks = strategy.micro_batch_size, strategy.data_parallel
        cells.fail("global_batch", f"dp {ranks} x micro_batch {size} = {together} does not divide {batch}")
        return None
    cells.choice("task", ("pre-training", "fine-tuning"), "pre-training")
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
        lora_targets=tuple(cells.text("lora_targets").split()),
    )
    for path, message in recipe_mistakes(recipe, spec):
        cells.fail("recipe", f"{path}: {message}")
    return recipe


def measured_of(
    cells: Cells, recipe: Recipe | None, cluster: Cluster | None, *, planned: bool = False
) -> tuple[float | None, int | None, bool]:
    """Seconds of a step, bytes of the fullest chip, whether it ran out of memory; a planned row may have none."""
    out = cells.text("memory_gib").upper() == "OOM"
    gib = None if out else cells.number("memory_gib")
    seconds, rate = cells.number("step_time_s"), cells.number("tokens_per_s_per_gpu")
    if not planned and not any(cells.has(column) for column in ("step_time_s", "tokens_per_s_per_gpu", "memory_gib")):
        cells.fail("step_time_s", "nothing was measured: give step_time_s, tokens_per_s_per_gpu or memory_gib")
    if rate is not None and recipe is not None and cluster is not None:
        by_rate = recipe.tokens_per_step / (rate * cluster.num_chips)
        if seconds is not None and abs(by_rate / seconds - 1) > _AGREES:
            cells.fail("step_time_s", f"{seconds:g} s, but {rate:g} tokens/s of each chip take {by_rate:.4g} s")
        seconds = by_rate if seconds is None else seconds
    return seconds, None if gib is None else round(gib * _GIB), out
