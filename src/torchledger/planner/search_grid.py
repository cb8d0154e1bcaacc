"""The grid of layouts: its axes, how many points it has, and its points in an order that lets whole subtrees be cut.

A point is decided in five steps, and each step's choices depend only on the ones before it::

    recipe ──> split ────────────> micro-batch ──> shape ─────────────> order ──────────> sharding
               tp, cp, pp, ep,     sequences       sequence parallel,   schedule,         level, group,
               (dp from the chips)                 context kind,        virtual stages    reshard
                                                   recompute

Nothing is enumerated to be counted: the points below a node are a product of numbers of choices.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from torchledger.spec import ModelSpec, Recipe, Strategy
from torchledger.spec.recipe import Recompute
from torchledger.spec.strategy import ContextKind, Schedule

#: Plain choices before exotic ones: of two layouts that cost the same the one that stands first is preferred.
SCHEDULES: tuple[Schedule, ...] = ("1f1b", "interleaved", "gpipe", "zero-bubble", "dualpipe")
CONTEXT_KINDS: tuple[ContextKind, ...] = ("ring", "all-gather", "ulysses")
RECOMPUTES: tuple[Recompute, ...] = ("none", "selective", "full")
SHARD_LEVELS: tuple[int, ...] = (0, 1, 2, 3)

#: A shard level and whether gathered weights are given back.
ShardKind = tuple[int, bool]
SHARD_KINDS: tuple[ShardKind, ...] = ((0, True), (1, True), (2, True), (3, True), (3, False))


@cache
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, smallest first.

    >>> divisors(12)
    (1, 2, 3, 4, 6, 12)
    """
    small = [each for each in range(1, int(number**0.5) + 1) if number % each == 0]
    return tuple(small + [number // each for each in reversed(small) if each * each != number])


class Split(NamedTuple):
    """How many ranks each kind of parallelism has."""

    tensor_parallel: int
    context_parallel: int
    pipeline_parallel: int
    data_parallel: int
    expert_parallel: int
    expert_tensor_parallel: int


class Shape(NamedTuple):
    """What, with the split, decides what one rank runs on one micro-batch."""

    sequence_parallel: bool
    context_kind: ContextKind
    recompute: Recompute


class Order(NamedTuple):
    """In what order micro-batches run."""

    schedule: Schedule
    virtual_stages: int


class Sharding(NamedTuple):
    """What data parallel ranks share."""

    shard_level: int
    shard_group: int
    reshard: bool

    @property
    def kind(self) -> ShardKind:
        """All but the group."""
        return self.shard_level, self.reshard


@dataclass(frozen=True, slots=True)
class Axes:
    """Which choices are on the grid. Empty tuples mean all that the model and the cluster know.

    Attributes:
        tensor_parallel, context_parallel, pipeline_parallel, data_parallel, expert_parallel: numbers of ranks.
        sequence_parallels: whether norms split tokens, where there are tensor parallel ranks.
        micro_batch_sizes: sequences; empty is every divisor of the batch.
        schedules: orders of micro-batches.
        virtual_stages: chunks of layers a rank; orders that cannot have one of them are ruled out. Empty is 2 up to
            what the layers allow for `interleaved`, and 1 for the others.
        context_kinds: ways to attend over split tokens.
        recomputes: what is run again.
        shard_levels: ZeRO levels.
        shard_groups: also groups smaller than all data parallel ranks (HSDP).
        reshards: whether gathered weights are given back after the forward pass, at level 3.
    """

    tensor_parallel: tuple[int, ...] = ()
    context_parallel: tuple[int, ...] = ()
    pipeline_parallel: tuple[int, ...] = ()
    data_parallel: tuple[int, ...] = ()
    expert_parallel: tuple[int, ...] = ()
    sequence_parallels: tuple[bool, ...] = (False, True)
    micro_batch_sizes: tuple[int, ...] = ()
    schedules: tuple[Schedule, ...] = SCHEDULES
    virtual_stages: tuple[int, ...] = ()
    context_kinds: tuple[ContextKind, ...] = CONTEXT_KINDS
    recomputes: tuple[Recompute, ...] = RECOMPUTES
    shard_levels: tuple[int, ...] = SHARD_LEVELS
    shard_groups: bool = True
    reshards: tuple[bool, ...] = (True, False)


class Grid:
    """All layouts of one model on a number of chips.

    Args:
        spec: the model; its layers and experts bound two axes.
        batch_size: sequences in a step.
        num_chips: ranks of every layout.
        base: what no axis decides (the stack, overlaps, prefetch) is taken from here.
        axes: the choices.
    """

    __slots__ = ("axes", "base", "batch_size", "micro_batch_sizes", "num_chips", "spec")

    def __init__(self, spec: ModelSpec, batch_size: int, num_chips: int, base: Strategy, axes: Axes) -> None:
        self.spec = spec
        self.batch_size = batch_size
        self.num_chips = num_chips
        self.base = base
        self.axes = axes
        self.micro_batch_sizes = axes.micro_batch_sizes or divisors(batch_size)

    def splits(self) -> Iterator[Split]:
        """Every way to spread the chips: tp · cp · pp · dp is their number; ep divides dp · cp.

        Where tensor parallelism splits no expert (etp 1), its ranks may have experts of their own: ep divides
        dp · cp · tp (arXiv:2504.14960).
        """
        axes, moe = self.axes, self.spec.moe
        for tp in _among(divisors(self.num_chips), axes.tensor_parallel):
            for cp in _among(divisors(self.num_chips // tp), axes.context_parallel):
                for pp in _among(divisors(self.num_chips // (tp * cp)), axes.pipeline_parallel):
                    dp = self.num_chips // (tp * cp * pp)
                    if dp not in (axes.data_parallel or (dp,)):
                        continue
                    if moe is None:
                        for ep in axes.expert_parallel or (1,):  # more than 1 breaks a rule, which says so
                            yield Split(tp, cp, pp, dp, ep, 0)
                        continue
                    for ep in _among(divisors(dp * cp * tp), axes.expert_parallel):
                        if dp * cp % ep == 0:
                            yield Split(tp, cp, pp, dp, ep, 0)
                        if tp > 1:
                            yield Split(tp, cp, pp, dp, ep, 1)

    def shapes(self, split: Split) -> tuple[Shape, ...]:
        """Choices that decide, with the split and the micro-batch, what a rank runs."""
        return _shapes(split.tensor_parallel > 1, split.context_parallel > 1, self.axes)

    def orders(self, split: Split) -> tuple[Order, ...]:
        """Schedules, and virtual stages where they have any."""
        return _orders(split.pipeline_parallel, self.spec.num_layers, self.axes)

    def shardings(self, split: Split) -> tuple[Sharding, ...]:
        """ZeRO levels, the groups that share, and whether gathered weights are given back."""
        return _shardings(split.data_parallel, split.context_parallel, self.axes)

    def num_below_split(self, split: Split) -> int:
        """Points under a split."""
        below = len(self.shapes(split)) * len(self.orders(split)) * len(self.shardings(split))
        return len(self.micro_batch_sizes) * below

    @property
    def num_points(self) -> int:
        """Points of the whole grid."""
        return sum(self.num_below_split(split) for split in self.splits())

    def strategy(
        self,
        split: Split,
        micro_batch_size: int = 1,
        shape: Shape | None = None,
        order: Order | None = None,
        sharding: Sharding | None = None,
    ) -> Strategy:
        """The layout of a point; what is not decided yet has its plainest value."""
        base = self.base
        kind, sequence = (base.context_kind, False) if shape is None else (shape.context_kind, shape.sequence_parallel)
        schedule, chunks = (SCHEDULES[0], 1) if order is None else order
        level, group, reshard = (0, 0, True) if sharding is None else sharding
        return Strategy(
            base.stack,
            split.data_parallel,
            level,
            group,
            reshard,
            base.prefetch,
            split.tensor_parallel,
            sequence,
            base.vocab_parallel,
            split.pipeline_parallel,
            schedule,
            chunks,
            (),
            split.context_parallel,
            kind,
            split.expert_parallel,
            split.expert_tensor_parallel,
            micro_batch_size,
            base.overlap_data,
            base.overlap_tensor,
        )

    def rows(self, recipes: tuple[Recipe, ...]) -> tuple[tuple[str, str], ...]:
        """The axes with their choices, for a screen."""
        splits = tuple(self.splits())
        shown = [
            ("tensor parallel", _values(split.tensor_parallel for split in splits)),
            ("context parallel", _values(split.context_parallel for split in splits)),
            ("pipeline parallel", _values(split.pipeline_parallel for split in splits)),
            ("data parallel", _values(split.data_parallel for split in splits)),
        ]
        if self.spec.moe is not None:
            shown.append(("expert parallel", _values(split.expert_parallel for split in splits)))
            shown.append(("expert tensor parallel", "as tensor parallel, 1"))
        orders = {order for split in splits for order in self.orders(split)}
        shown += [
            ("micro-batch size", ", ".join(map(str, self.micro_batch_sizes))),
            ("sequence parallel", _words(self.axes.sequence_parallels)),
            ("context kind", ", ".join(self.axes.context_kinds)),
            ("recompute", ", ".join(self.axes.recomputes)),
            ("schedule", ", ".join(self.axes.schedules)),
            ("virtual stages", _values(order.virtual_stages for order in orders)),
            ("shard level", ", ".join(map(str, self.axes.shard_levels))),
            ("shard group", "all, and every divisor of data parallel" if self.axes.shard_groups else "all"),
            ("reshard", _words(self.axes.reshards)),
        ]
        if len(recipes) > 1:
            shown.append(("precision", ", ".join(dict.fromkeys(each.precision for each in recipes))))
            if any(each.offload_activations or each.offload_optimizer for each in recipes):
                shown.append(("offload", "; ".join(dict.fromkeys(offload_text(each) for each in recipes))))
        return tuple(shown)


def _among(known: tuple[int, ...], asked: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each for each in known if each in asked) if asked else known


@cache
def _shapes(is_tensor_parallel: bool, is_context_parallel: bool, axes: Axes) -> tuple[Shape, ...]:
    return tuple(
        Shape(sequence_parallel, kind, recompute)
        for recompute in axes.recomputes
        for sequence_parallel in (axes.sequence_parallels if is_tensor_parallel else (False,))
        for kind in (axes.context_kinds if is_context_parallel else axes.context_kinds[:1])
    )


@cache
def _orders(pipeline_parallel: int, num_layers: int, axes: Axes) -> tuple[Order, ...]:
    """Without stages there is one order; with them each schedule, and as many chunks as have a layer each.

    Chunks that are asked for stay on the grid where no order can have them: a rule says why.
    """
    whole = axes.virtual_stages or (1,)
    if pipeline_parallel == 1:
        return tuple(Order(axes.schedules[0], each) for each in whole)
    chunks = axes.virtual_stages or tuple(range(2, num_layers // pipeline_parallel + 1))
    orders: list[Order] = []
    for schedule in axes.schedules:
        orders += [Order(schedule, each) for each in (chunks if schedule == "interleaved" else whole)]
    return tuple(orders)


@cache
def _shardings(data_parallel: int, context_parallel: int, axes: Axes) -> tuple[Sharding, ...]:
    """One rank alone shares nothing; a group of all ranks is written 0."""
    if data_parallel * context_parallel == 1:
        return (Sharding(axes.shard_levels[0], 0, True),)
    smaller = tuple(each for each in divisors(data_parallel) if 1 < each < data_parallel) if axes.shard_groups else ()
    shardings: list[Sharding] = []
    for level in axes.shard_levels:
        if level == 0:
            shardings.append(Sharding(0, 0, True))
            continue
        for group in (0, *smaller):
            shardings += [Sharding(level, group, reshard) for reshard in (axes.reshards if level == 3 else (True,))]
    return tuple(shardings)


def _values(numbers: Iterable[int]) -> str:
    """Numbers in order, and a long row of them by its ends.

    >>> _values([4, 1, 2]), _values(range(2, 25))
    ('1, 2, 4', '2 to 24 (23 values)')
    """
    ordered = sorted(set(numbers))
    if len(ordered) > 16:
        return f"{ordered[0]} to {ordered[-1]} ({len(ordered)} values)"
    return ", ".join(map(str, ordered))


def _words(choices: Iterable[bool]) -> str:
    return ", ".join("yes" if each else "no" for each in choices)


def offload_text(recipe: Recipe) -> str:
    """What a recipe keeps in host memory, in words.

    >>> offload_text(Recipe()), offload_text(Recipe(offload_activations=0.5, offload_optimizer=True))
    ('nothing', '50% of activations and optimizer')
    """
    shares = []
    if recipe.offload_activations:
        shares.append(f"{recipe.offload_activations:.0%} of activations")
    if recipe.offload_optimizer:
        shares.append("optimizer")
    return " and ".join(shares) or "nothing"
