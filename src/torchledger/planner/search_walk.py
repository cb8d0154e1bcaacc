"""Branch and bound over the grid: which points are looked at, which subtrees are cut, and what each loses by.

The walk opens the node with the least possible step first. A subtree goes

- by a shape rule that holds for all of it,
- by memory: the least that any of its points can hold is more than a rank may use,
- by time: the least time of its points is longer than the last of the best that are kept, *and* some layout that is
  already known is at least as good as its least time and its least memory, and better in one of them.

All comparisons are strict, so no point that could be among the best, or on the front, or equal to one of them is ever
lost, as long as the bounds are bounds. `tests/planner/test_search.py` compares with every point of drawn grids.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from torchledger.planner.outcome import Estimate
from torchledger.planner.search_grid import Grid, Order, Shape, Sharding, Split
from torchledger.planner.search_kept import Candidate, Keeper, Tally
from torchledger.spec import Recipe, Strategy
from torchledger.spec.recipe import Recompute

_SPLIT_FIELDS = frozenset(
    {
        "data_parallel",
        "tensor_parallel",
        "context_parallel",
        "pipeline_parallel",
        "expert_parallel",
        "expert_tensor_parallel",
    }
)
_BATCH_FIELDS = _SPLIT_FIELDS | {"micro_batch_size"}
_SHAPE_FIELDS = _BATCH_FIELDS | {"sequence_parallel", "context_kind", "recompute"}
_ORDER_FIELDS = frozenset({"schedule", "virtual_stages"})
_SHARD_FIELDS = frozenset({"shard_level", "shard_group", "reshard"})

_STATE = "weights, gradients and optimizer state alone"
_ACTIVATIONS = "training state and activations, at the least"
_PEAK = "the peak of the fullest rank"


class Least(NamedTuple):
    """What no point of a subtree can be below.

    Attributes:
        step_s: seconds of a step.
        peak_bytes: bytes of the fullest rank.
        cause: what makes the time long beside the arithmetic that every layout does; names a loser's reason.
    """

    step_s: float
    peak_bytes: float
    cause: str


class Refused(Protocol):
    """A shape rule that a layout breaks."""

    @property
    def reason(self) -> str:
        """The rule and the numbers that break it."""
        ...

    @property
    def fields(self) -> frozenset[str]:
        """The fields of `Strategy` (and `recompute`) that the rule reads: what shares their values breaks it too."""
        ...


class Costs(Protocol):
    """What the walk asks about layouts of one model under one recipe on one cluster."""

    @property
    def capacity_bytes(self) -> int | None:
        """What a rank may use; nothing where it is unknown."""
        ...

    def refusals(self, strategy: Strategy, recompute: Recompute) -> Iterable[Refused]:
        """The shape rules that a layout breaks."""
        ...

    def least_of_split(self, strategy: Strategy) -> Least:
        """A bound of all layouts with these numbers of ranks."""
        ...

    def least_of_shape(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in schedule, virtual stages and sharding only."""
        ...

    def least_of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only."""
        ...

    def estimate(self, strategy: Strategy, recompute: Recompute) -> Estimate:
        """Seconds and bytes of one layout that breaks no rule."""
        ...


class _Node(NamedTuple):
    """A subtree that waits: its bound, and what is decided."""

    step_s: float
    number: int
    least: Least
    variant: int
    split: Split
    micro_batch_size: int
    shape: Shape | None


class Walk:
    """One search over one grid, for one or several recipes.

    Args:
        grid: the points.
        variants: each recipe with its costs; an earlier one is preferred where two cost the same.
        keeper: what is kept.
        is_limited: whether a layout must fit.
    """

    __slots__ = ("_grid", "_heap", "_is_limited", "_number", "_variants", "keeper", "tally")

    def __init__(
        self, grid: Grid, variants: tuple[tuple[Recipe, Costs], ...], keeper: Keeper, *, is_limited: bool = True
    ) -> None:
        self._grid = grid
        self._variants = variants
        self._is_limited = is_limited
        self._heap: list[_Node] = []
        self._number = 0
        self.keeper = keeper
        self.tally = Tally()

    def run(self) -> None:
        """Consider every point of the grid once."""
        for variant, (_, costs) in enumerate(self._variants):
            for split in self._grid.splits():
                self._begin(variant, costs, split)
        heapify(self._heap)
        while self._heap:
            node = heappop(self._heap)
            below = self._num_below(node)
            costs = self._variants[node.variant][1]
            if self._is_cut(node.least, costs, below, _STATE if node.shape is None else _ACTIVATIONS):
                continue
            if node.shape is None:
                self._open_split(node, costs)
            else:
                self._open_shape(node, costs)

    def _begin(self, variant: int, costs: Costs, split: Split) -> None:
        below = self._grid.num_below_split(split)
        strategy = self._grid.strategy(split)
        if self._is_refused(costs, strategy, "none", _SPLIT_FIELDS, below):
            return
        least = costs.least_of_split(strategy)
        if not self._is_cut(least, costs, below, _STATE):
            self._heap.append(self._node(least, variant, split, 0, None))

    def _node(self, least: Least, variant: int, split: Split, micro_batch_size: int, shape: Shape | None) -> _Node:
        self._number += 1
        return _Node(least.step_s, self._number, least, variant, split, micro_batch_size, shape)

    def _num_below(self, node: _Node) -> int:
        if node.shape is None:
            return self._grid.num_below_split(node.split)
        return self._grid.num_below_shape(node.split)

    def _is_refused(
        self, costs: Costs, strategy: Strategy, recompute: Recompute, decided: frozenset[str], below: int
    ) -> bool:
        """Whether a rule that reads only what is decided holds for the whole subtree."""
        for refused in costs.refusals(strategy, recompute):
            if refused.fields <= decided:
                self.tally.lose("shape", refused.reason, below)
                return True
        return False

    def _is_cut(self, least: Least, costs: Costs, below: int, what: str) -> bool:
        capacity = costs.capacity_bytes
        if self._is_limited and capacity is not None and least.peak_bytes > capacity:
            self.tally.lose("memory", what, below, least.peak_bytes - capacity)
            return True
        if self.keeper.may_matter(least.step_s, least.peak_bytes):
            return False
        self.tally.lose("time", least.cause, below)
        return True

    def _open_split(self, node: _Node, costs: Costs) -> None:
        """Micro-batches and shapes of a split, each with its own bound."""
        grid, split = self._grid, node.split
        shapes, below = grid.shapes(split), grid.num_below_shape(split)
        for size in grid.micro_batch_sizes:
            if self._is_refused(
                costs, grid.strategy(split, size), "none", _BATCH_FIELDS, grid.num_below_micro_batch(split)
            ):
                continue
            for shape in shapes:
                strategy = grid.strategy(split, size, shape)
                if self._is_refused(costs, strategy, shape.recompute, _SHAPE_FIELDS, below):
                    continue
                least = costs.least_of_shape(strategy, shape.recompute)
                if not self._is_cut(least, costs, below, _ACTIVATIONS):
                    heappush(self._heap, self._node(least, node.variant, split, size, shape))

    def _open_shape(self, node: _Node, costs: Costs) -> None:
        """Schedules and shardings of a shape: the points."""
        grid, split, size, shape = self._grid, node.split, node.micro_batch_size, node.shape
        assert shape is not None
        shardings = self._allowed_shardings(node, costs)
        for order in grid.orders(split):
            strategy = grid.strategy(split, size, shape, order)
            if self._is_refused(costs, strategy, shape.recompute, _SHAPE_FIELDS | _ORDER_FIELDS, len(shardings)):
                continue
            least = costs.least_of_order(strategy, shape.recompute)
            if self._is_cut(least, costs, len(shardings), _ACTIVATIONS):
                continue
            for sharding in shardings:
                self._evaluate(node, costs, order, sharding, least.cause)

    def _allowed_shardings(self, node: _Node, costs: Costs) -> list[Sharding]:
        """Shardings that break no rule whatever the schedule is."""
        grid, split, size, shape = self._grid, node.split, node.micro_batch_size, node.shape
        assert shape is not None
        below = len(grid.orders(split))
        return [
            sharding
            for sharding in grid.shardings(split)
            if not self._is_refused(
                costs,
                grid.strategy(split, size, shape, None, sharding),
                shape.recompute,
                _SHAPE_FIELDS | _SHARD_FIELDS,
                below,
            )
        ]

    def _evaluate(self, node: _Node, costs: Costs, order: Order, sharding: Sharding, cause: str) -> None:
        assert node.shape is not None
        recompute = node.shape.recompute
        strategy = self._grid.strategy(node.split, node.micro_batch_size, node.shape, order, sharding)
        if self._is_refused(costs, strategy, recompute, _SHAPE_FIELDS | _ORDER_FIELDS | _SHARD_FIELDS, 1):
            return
        estimate = costs.estimate(strategy, recompute)
        self.tally.num_evaluated += 1
        if not self._is_cut(Least(estimate.step_s, estimate.peak_bytes, cause), costs, 1, _PEAK):
            self.tally.lose("time", cause, 1)  # until it turns out to be kept
            recipe = self._recipe(node.variant, recompute)
            self.keeper.offer(Candidate(strategy, recipe, estimate, cause), node.variant)

    def _recipe(self, variant: int, recompute: Recompute) -> Recipe:
        recipe = self._variants[variant][0]
        return recipe if recipe.recompute == recompute else replace(recipe, recompute=recompute)
