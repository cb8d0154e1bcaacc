"""What a search keeps, the best and the front, and what it counts of the rest."""

from __future__ import annotations

import math
from bisect import insort
from dataclasses import dataclass, field
from typing import Literal

from torchledger.planner.outcome import Estimate
from torchledger.planner.pareto import Front
from torchledger.planner.search_grid import CONTEXT_KINDS, RECOMPUTES, SCHEDULES
from torchledger.spec import Recipe, Strategy

LossKind = Literal["shape", "memory", "time"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One layout that was evaluated.

    Attributes:
        strategy: the layout.
        recipe: the recipe with the point's recompute.
        estimate: its seconds and bytes.
        cause: what makes its time long beside the arithmetic that every layout does.
        loses_by: of a runner-up, what it loses most seconds by against the winner.
    """

    strategy: Strategy
    recipe: Recipe
    estimate: Estimate
    cause: str
    loses_by: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Loss:
    """Points that lost for one reason.

    Attributes:
        kind: `shape`, `memory` or `time`.
        reason: the rule, what is too large, or the cause of the time.
        num_points: how many.
        missing_bytes: of those that do not fit, what the nearest of them has too much, at the least.
    """

    kind: LossKind
    reason: str
    num_points: int
    missing_bytes: float | None


def plainness(strategy: Strategy, recipe: Recipe, variant: int) -> tuple[int, ...]:
    """The order in which equal layouts are preferred: fewer exotic features first.

    First the recipe as asked before changed ones; then fewer of: context, expert and pipeline parallelism, groups that
    shard less than all, recompute, sequence parallelism, sharding; then the plainer schedule, smaller numbers of ranks,
    larger micro-batches.
    """
    recompute = RECOMPUTES.index(recipe.recompute)
    return (
        variant,
        (strategy.context_parallel > 1)
        + (strategy.expert_parallel > 1)
        + (strategy.pipeline_parallel > 1)
        + (strategy.shard_group > 0)
        + (strategy.virtual_stages > 1)
        + (recompute > 0)
        + (strategy.sequence_parallel)
        + (strategy.shard_level > 0)
        + (strategy.tensor_parallel > 1),
        SCHEDULES.index(strategy.schedule),
        strategy.virtual_stages,
        recompute,
        strategy.shard_level,
        strategy.shard_group,
        not strategy.reshard,
        strategy.sequence_parallel,
        strategy.context_parallel,
        strategy.tensor_parallel,
        strategy.pipeline_parallel,
        strategy.expert_parallel,
        -strategy.expert_tensor_parallel,
        -strategy.micro_batch_size,
        CONTEXT_KINDS.index(strategy.context_kind),
    )


class Keeper:
    """The best by time and the front of time against memory among what fits.

    Args:
        num_best: how many of the best are kept.
        by_memory: keep the smallest instead of the fastest, and no front: how near a miss is.
    """

    __slots__ = ("_best", "_by_memory", "_num_best", "front", "worst")

    def __init__(self, num_best: int, *, by_memory: bool = False) -> None:
        self._num_best = num_best
        self._by_memory = by_memory
        self._best: list[tuple[float, float, tuple[int, ...], Candidate]] = []
        self.front = Front[Candidate]()
        #: the amount above which nothing is among the best any more
        self.worst = float("inf")

    @property
    def best(self) -> tuple[Candidate, ...]:
        """The best in order."""
        return tuple(each[3] for each in self._best)

    def may_matter(self, step_s: float, peak_bytes: float) -> bool:
        """Whether a point with at least these amounts can still be among what is kept."""
        if self._by_memory:
            return peak_bytes <= self.worst
        return step_s <= self.worst or not self.front.beats(step_s, peak_bytes)

    @property
    def kept(self) -> tuple[Candidate, ...]:
        """The best and the front, each once."""
        best = self.best
        return (*best, *(each for each in self.front.items if each not in best))

    def offer(self, candidate: Candidate, variant: int) -> None:
        """Keep a layout if it belongs to the best or on the front."""
        rank = plainness(candidate.strategy, candidate.recipe, variant)
        amounts = (candidate.estimate.step_s, float(candidate.estimate.peak_bytes))
        if self._by_memory:
            amounts = (amounts[1], amounts[0])
        else:
            self.front.add(*amounts, rank, candidate)
        if amounts[0] <= self.worst:
            insort(self._best, (*amounts, rank, candidate), key=lambda each: each[:3])
            del self._best[self._num_best :]
            if len(self._best) == self._num_best:
                self.worst = self._best[-1][0]


@dataclass(slots=True)
class Tally:
    """How many points were considered, and what the losers lost by."""

    num_considered: int = 0
    num_evaluated: int = 0
    losses: dict[tuple[LossKind, str], tuple[int, float]] = field(default_factory=dict)

    def lose(self, kind: LossKind, reason: str, num_points: int, missing_bytes: float = math.inf) -> None:
        """Count points that lost."""
        self.num_considered += num_points
        count, nearest = self.losses.get((kind, reason), (0, math.inf))
        self.losses[kind, reason] = (count + num_points, min(nearest, missing_bytes))

    def rows(self, kept: tuple[Candidate, ...]) -> tuple[Loss, ...]:
        """The losses, most points first, without the layouts that were kept in the end."""
        counts = {key: count for key, (count, _) in self.losses.items()}
        for candidate in kept:
            counts["time", candidate.cause] -= 1
        found = [
            Loss(kind, reason, counts[kind, reason], None if math.isinf(nearest) else nearest)
            for (kind, reason), (_, nearest) in self.losses.items()
            if counts[kind, reason]
        ]
        return tuple(sorted(found, key=lambda each: (-each.num_points, each.kind, each.reason)))
