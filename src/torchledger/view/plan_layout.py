"""The screen of a layout: does it fit, how fast, where do the seconds and the bytes go, what does the run cost."""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.ledger import MODEL_FLOPS
from torchledger.planner.outcome import CAUSES, PARTS, Plan, StagePlan
from torchledger.spec import Recipe, Strategy
from torchledger.units import (
    format_bytes,
    format_count,
    format_duration,
    format_flops,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.adding import Printed, bytes_printed, seconds_printed
from torchledger.view.plan_line import WIDEST, schedule_lines
from torchledger.view.plan_run import run_facts
from torchledger.view.plan_stages import stage_table
from torchledger.view.screen import Bar, Bars, Block, Facts, Lines, assumed

#: Shares of a step below this are rounding.
_RESIDUE = 1e-9


def plan_screen(plan: Plan, *, currency: str = "USD", width: int | None = None) -> tuple[Block, ...]:
    """The whole answer, the most asked for first.

    Args:
        plan: the plan.
        currency: of its money.
        width: signs that a line of the time line may have; nothing is as many as a page has.
    """
    return (
        Lines((headline(plan),), mark="headline" if plan.fits is not False else "warning"),
        Facts(tuple(layout_facts(plan)), "layout"),
        Facts(tuple(_rate_facts(plan)), "a step"),
        time_bars(plan),
        memory_bars(plan),
        stage_table(plan),
        *schedule_lines(plan, min(width - 2, WIDEST) if width else WIDEST),
        Facts(tuple(run_facts(plan, currency)), "the whole run"),
        *assumed(plan.assumptions),
    )


def headline(plan: Plan) -> str:
    """Whether it fits, how fast it is and how long it takes, in one sentence."""
    where = f"{plan.spec.name} on {group_digits(plan.cluster.num_chips)} × {plan.cluster.chip.name}"
    if plan.fits is False:
        assert plan.capacity_bytes is not None
        return f"{where} does not fit: {format_bytes(plan.peak_bytes)} of {format_bytes(plan.capacity_bytes)} a chip"
    verdict = "fits" if plan.fits else "(whether it fits is unknown)"
    speed = f"{_seconds(plan.slowest).whole} a step, {format_count(plan.tokens_per_s)} tokens/s"
    days = "" if plan.days is None else f", {format_number(plan.days)} days"
    return f"{where} {verdict}: {speed}, MFU {format_percent(plan.mfu)}{days}"


def layout_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    """The layout in words, one name and value a line."""
    strategy, recipe = plan.strategy, plan.recipe
    yield "ranks", f"{layout_text(strategy)} = {group_digits(strategy.num_ranks)}"
    yield "stack", strategy.stack
    yield "batch", _batch_text(recipe, strategy)
    yield "precision", f"{recipe.precision}, {recipe.optimizer.kind}, recompute {_recompute_text(recipe)}"
    extras = [*_extras(recipe, strategy)]
    if extras:
        yield "also", ", ".join(extras)


def layout_text(strategy: Strategy) -> str:
    """Who splits what among how many ranks; what is 1 is left out.

    >>> layout_text(Strategy(data_parallel=32, shard_level=1, tensor_parallel=8, pipeline_parallel=4))
    'tensor 8 · pipeline 4 (1f1b) · data 32 (ZeRO 1)'
    """
    parts = []
    if strategy.tensor_parallel > 1:
        with_sequence = " (sequence parallel)" if strategy.sequence_parallel else ""
        parts.append(f"tensor {strategy.tensor_parallel}{with_sequence}")
    if strategy.context_parallel > 1:
        parts.append(f"context {strategy.context_parallel} ({strategy.context_kind})")
    if strategy.pipeline_parallel > 1:
        chunks = f", {strategy.virtual_stages} chunks a rank" if strategy.virtual_stages > 1 else ""
        parts.append(f"pipeline {strategy.pipeline_parallel} ({strategy.schedule}{chunks})")
    if strategy.data_parallel > 1 or not parts:
        parts.append(f"data {strategy.data_parallel}{_sharding(strategy)}")
    text = " · ".join(parts)
    if strategy.expert_parallel > 1:
        is_tensor_too = strategy.tensor_parallel > 1 and strategy.expert_tensor_parallel == 1
        whose = "data · context · tensor" if is_tensor_too else "data · context"
        text += f" (experts over {strategy.expert_parallel} of the {whose} ranks)"
    return text


def _sharding(strategy: Strategy) -> str:
    if not strategy.shard_level:
        return ""
    group = f" in groups of {strategy.shard_group}" if strategy.shard_group else ""
    return f" (ZeRO {strategy.shard_level}{group})"


def _batch_text(recipe: Recipe, strategy: Strategy) -> str:
    micro = strategy.micro_batch_size or recipe.batch_size // (recipe.accumulation_steps * strategy.data_parallel)
    turns = recipe.batch_size // (strategy.data_parallel * micro) if micro else 0
    return (
        f"{group_digits(recipe.batch_size)} sequences × {group_digits(recipe.sequence_length)} tokens ="
        f" {format_count(recipe.tokens_per_step)} tokens; a replica runs {group_digits(turns)} micro-batches of {micro}"
    )


def _recompute_text(recipe: Recipe) -> str:
    layers = f" ({recipe.recompute_layers} layers of each chunk)" if recipe.recompute_layers else ""
    return f"{recipe.recompute}{layers}"


def _extras(recipe: Recipe, strategy: Strategy) -> Iterator[str]:
    if strategy.stage_layers:
        yield f"layers by chunk {'-'.join(map(str, strategy.stage_layers))}"
    if strategy.expert_tensor_parallel:
        yield f"experts' matrices over {strategy.expert_tensor_parallel}"
    if strategy.shard_level == 3 and not strategy.reshard:
        yield "weights kept between forward and backward pass"
    if recipe.offload_activations:
        yield f"{format_percent(recipe.offload_activations)} of the activations in host memory"
    if recipe.offload_optimizer:
        yield "optimizer in host memory"
    if recipe.lora_rank:
        yield f"LoRA of rank {recipe.lora_rank}"
    if recipe.trainable:
        yield f"only {', '.join(recipe.trainable)} trained"


def _rate_facts(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "step", _seconds(plan.slowest).whole
    if plan.expected_s is not None:
        yield "expected", f"{format_duration(plan.expected_s)}, with what measured rows like it left over"
    if plan.interval_s is not None:
        low, high = plan.interval_s
        yield "90 % interval", f"{format_duration(low)} to {format_duration(high)}"
    per_chip = plan.tokens_per_s / plan.cluster.num_chips
    yield "tokens/s", f"{format_number(plan.tokens_per_s, 4)} ({format_number(per_chip, 4)} a chip)"
    rate = plan.model_flops / plan.step_s / plan.cluster.num_chips
    yield "MFU", f"{format_percent(plan.mfu)} = {format_flops(rate)}/s a chip; {MODEL_FLOPS.text}"
    yield "HFU", f"{format_percent(plan.hfu)}, what really runs: recompute in, pairs that fused attention masks out"


def time_bars(plan: Plan) -> Bars:
    """Seconds of the slowest stage by cause; the printed ones add up to the printed step."""
    stage = plan.slowest
    printed = _seconds(stage)
    bars = [Bar(cause, stage.seconds[cause] / plan.step_s, printed.text(cause)) for cause in _ordered(stage, printed)]
    which = f" of stage {stage.stage.index}, which waits least" if len(plan.stages) > 1 else ""
    return Bars(tuple(bars), f"seconds{which}: {printed.whole}")


def memory_bars(plan: Plan) -> Bars:
    """Bytes of the fullest stage by part; the printed ones add up to the printed peak."""
    stage = plan.fullest
    parts = stage.memory.parts
    printed = bytes_printed({part: num_bytes for part, num_bytes in parts.items() if num_bytes})
    order = [*PARTS, *(part for part in parts if part not in PARTS)]
    bars = [Bar(part, parts[part] / stage.memory.peak_bytes, printed.text(part)) for part in order if parts.get(part)]
    which = f" of stage {stage.stage.index}, the fullest" if len(plan.stages) > 1 else ""
    against = "; the chip's memory is unknown"
    if plan.capacity_bytes is not None:
        share = stage.memory.peak_bytes / plan.capacity_bytes
        against = f", {format_percent(share)} of the {format_bytes(plan.capacity_bytes)} that a rank may use"
    host = stage.memory.host_bytes
    note = f"in host memory beside: {format_bytes(host)}" if host else ""
    return Bars(tuple(bars), f"memory{which}: {printed.whole}{against}", note)


def _seconds(stage: StagePlan) -> Printed:
    """Without what is left of a difference of equal sums."""
    least = _RESIDUE * sum(stage.seconds.values())
    return seconds_printed({cause: seconds for cause, seconds in stage.seconds.items() if seconds > least})


def _ordered(stage: StagePlan, printed: Printed) -> Iterator[str]:
    order = [*CAUSES, *(cause for cause in stage.seconds if cause not in CAUSES)]
    return (cause for cause in order if cause in printed.parts)
