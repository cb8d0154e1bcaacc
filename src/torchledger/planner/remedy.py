"""What would make a layout fit: small changes of recipe and layout, those that fit with what they cost in time."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from torchledger.machine import Cluster
from torchledger.planner.constants import Constants
from torchledger.planner.errors import PlanError
from torchledger.planner.estimator import Estimator
from torchledger.planner.outcome import Estimate
from torchledger.planner.rules import refusals
from torchledger.planner.shard import micro_batch_size
from torchledger.planner.stack import stack
from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.spec.recipe import Recompute

#: Remedies that are told.
_MOST = 6
#: Chips are multiplied by at most this.
_MORE_CHIPS = (2, 4, 8)
#: What keeps less than each kind of recompute does.
_MORE_RECOMPUTE: Mapping[Recompute, tuple[Recompute, ...]] = {
    "none": ("selective", "full"),
    "selective": ("full",),
    "full": (),
}


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change after which the layout fits.

    Attributes:
        what: the change in words: `recompute full`.
        recipe, strategy, cluster: the question after it.
        estimate: its seconds and bytes.
    """

    what: str
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster
    estimate: Estimate


@dataclass(frozen=True, slots=True)
class _Change:
    """One thing that is done otherwise; what it leaves alone stays."""

    what: str
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster


def remedies(
    spec: ModelSpec, recipe: Recipe, strategy: Strategy, cluster: Cluster, *, constants: Constants | None = None
) -> tuple[Remedy, ...]:
    """Changes after which the layout fits, the fastest first.

    Each change is tried alone; where full recompute is not enough, what is not enough either is tried with it.

    Args:
        spec: the model.
        recipe: how it is trained.
        strategy: the layout that does not fit.
        cluster: where.
        constants: fitted ones.
    """
    now = _Change("", recipe, strategy, cluster)
    single = list(_changes(now))
    found = _that_fit(spec, single, constants)
    full = next((each for each in single if each.what == "recompute full"), None)
    if full is not None and not any(each.what == full.what for each in found):
        enough = {each.what for each in found}
        both = [each for each in _changes(full) if each.what not in enough]
        found += _that_fit(spec, [replace(each, what=f"recompute full, {each.what}") for each in both], constants)
    on_these = [each for each in found if each.cluster.num_chips == cluster.num_chips]
    on_more = [each for each in found if each.cluster.num_chips != cluster.num_chips]
    by_time = sorted(on_these, key=lambda each: each.estimate.step_s)
    return (*by_time[:_MOST], *sorted(on_more, key=lambda each: each.cluster.num_chips)[:1])


def largest_micro_batch(estimator: Estimator, strategy: Strategy) -> int:
    """The most sequences that a replica can run at once; 0 if not even one fits.

    A larger micro-batch never takes less, so the sizes that divide a replica's share are tried by halves.

    Raises:
        PlanError: nobody wrote down how much memory the chip has.
    """
    capacity = estimator.capacity_bytes
    if capacity is None:
        raise PlanError(f"the memory of {estimator.cluster.chip.name} is unknown, so nothing can be said to fit")
    own = estimator.recipe.batch_size // strategy.data_parallel
    sizes = [size for size in range(1, own + 1) if own % size == 0]

    def fits(size: int) -> bool:
        layout = replace(strategy, micro_batch_size=size)
        return all(estimator.memory(layout, each).peak_bytes <= capacity for each in estimator.held(layout))

    smallest_too_large = bisect_left(sizes, True, key=lambda size: not fits(size))
    return sizes[smallest_too_large - 1] if smallest_too_large else 0


def _that_fit(spec: ModelSpec, changes: list[_Change], constants: Constants | None) -> list[Remedy]:
    found = []
    for each in changes:
        if tuple(refusals(spec, each.recipe, each.strategy, each.cluster)):
            continue
        estimator = Estimator(spec, each.recipe, each.cluster, constants=constants)
        try:
            estimate = estimator.estimate(each.strategy)
        except PlanError:  # a fact that only this variant needs is unknown
            continue
        if estimator.capacity_bytes is not None and estimate.peak_bytes <= estimator.capacity_bytes:
            found.append(Remedy(each.what, each.recipe, each.strategy, each.cluster, estimate))
    return found


def _changes(now: _Change) -> Iterator[_Change]:
    """Every way to do one thing otherwise that can only make room."""
    yield from _recipes(now)
    yield from _layouts(now)
    strategy, cluster = now.strategy, now.cluster
    replicas = now.recipe.batch_size // micro_batch_size(now.recipe, strategy)
    for times in _MORE_CHIPS:
        if strategy.data_parallel * times <= replicas:
            yield replace(
                now,
                what=f"{cluster.num_chips * times:,} chips (data parallel {strategy.data_parallel * times})",
                strategy=replace(strategy, data_parallel=strategy.data_parallel * times),
                cluster=replace(cluster, num_chips=cluster.num_chips * times),
            )


def _recipes(now: _Change) -> Iterator[_Change]:
    recipe = now.recipe
    for recompute in _MORE_RECOMPUTE[recipe.recompute]:
        yield replace(now, what=f"recompute {recompute}", recipe=replace(recipe, recompute=recompute))
    if not recipe.offload_optimizer:
        yield replace(now, what="optimizer in host memory", recipe=replace(recipe, offload_optimizer=True))
    if recipe.optimizer.kind == "adamw":
        narrow = replace(recipe.optimizer, kind="adamw-8bit")
        yield replace(now, what="AdamW with 8-bit moments", recipe=replace(recipe, optimizer=narrow))
    if stack(now.strategy.stack).precision(recipe.precision) == "bf16-master":
        yield replace(now, what="no FP32 master copy", recipe=replace(recipe, precision="bf16-moments"))


def _layouts(now: _Change) -> Iterator[_Change]:
    strategy, rules = now.strategy, stack(now.strategy.stack)
    micro = micro_batch_size(now.recipe, strategy)
    if micro > 1:
        smaller = replace(strategy, micro_batch_size=micro // 2)
        yield replace(now, what=f"micro-batches of {micro // 2}", strategy=smaller)
    for level in rules.shard_levels:
        if level > strategy.shard_level and strategy.data_parallel > 1:
            yield replace(now, what=f"ZeRO {level}", strategy=replace(strategy, shard_level=level))
    if strategy.tensor_parallel > 1 and not strategy.sequence_parallel and rules.sequence_parallel:
        yield replace(now, what="sequence parallel", strategy=replace(strategy, sequence_parallel=True))
    names = {"tensor_parallel": "tensor parallel", "pipeline_parallel": "pipeline stages"}
    names |= {"context_parallel": "context parallel"}
    for name, words in names.items():
        for times in (2, 4, 8):
            if strategy.data_parallel % times == 0:
                size = getattr(strategy, name) * times
                spread = replace(strategy, data_parallel=strategy.data_parallel // times, **{name: size})
                yield replace(now, what=f"{words} {size}, data {spread.data_parallel}", strategy=spread)
