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

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol, TypeVar

from torchledger.planner.outcome import Estimate
from torchledger.planner.search_grid import SHARD_KINDS, Grid, Order, Shape, Sharding, ShardKind, Split
from torchledger.planner.search_kept import Candidate, Keeper, Tally
from torchledger.planner.search_rules import Refused, ShapeRules
from torchledger.spec import Recipe, Strategy
from torchledger.spec.recipe import Recompute

_C = TypeVar("_C")
#: Sequences of a micro-batch and the orders that such micro-batches can have.
_Sized = tuple[int, tuple[Order, ...]]

#: Nodes between two calls that tell how far a walk is; one takes about a millisecond.
TURNS = 8

_STATE = "weights, gradients and optimizer state alone"
_ACTIVATIONS = "training state and activations, at the least"
_PEAK = "the peak of the fullest rank"
_SHARING = "data parallel communication"


class Least(NamedTuple):
    """What no point of a subtree can be below.

    Attributes:
        pairs: seconds of a step and bytes of the fullest rank, for points of each kind of sharding. A kind that is not
            there has no points.
        cause: what makes the time long beside the arithmetic that every layout does; names a loser's reason.
        cause_s: how long.
    """

    pairs: Mapping[ShardKind, tuple[float, float]]
    cause: str
    cause_s: float

    @property
    def step_s(self) -> float:
        """Seconds of the kind of sharding that may be fastest."""
        return min(seconds for seconds, _ in self.pairs.values())

    @classmethod
    def of_any(cls, step_s: float, peak_bytes: float, cause: str, cause_s: float) -> Least:
        """The same for every kind of sharding."""
        return cls(dict.fromkeys(SHARD_KINDS, (step_s, peak_bytes)), cause, cause_s)


class Costs(Protocol):
    """What the walk asks about layouts of one model under one recipe on one cluster."""

    @property
    def capacity_bytes(self) -> int | None:
        """What a rank may use; nothing where it is unknown."""
        ...

    def refusals(self, strategy: Strategy) -> Iterable[Refused]:
        """The shape rules that a layout breaks."""
        ...

    def least_of_split(self, strategy: Strategy, shapes: Sequence[Shape], orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts with these numbers of ranks and one of these shapes and orders."""
        ...

    def least_of_shape(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts that differ in order, one of these, and sharding only."""
        ...

    def least_bytes(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...], number: int) -> float:
        """What no layout with micro-batches of this size or larger ones, so many or more, is below."""
        ...

    def least_of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only."""
        ...

    def least_of_pipeline(self, strategy: Strategy, recompute: Recompute, kinds: Collection[ShardKind]) -> Least:
        """The same for some kinds of sharding, closer, and dearer to know."""
        ...

    def peak_bytes(self, strategy: Strategy, recompute: Recompute) -> int:
        """Bytes of the fullest rank of one layout that breaks no rule."""
        ...

    def estimate(self, strategy: Strategy, recompute: Recompute) -> Estimate:
        """Seconds and bytes of one layout that breaks no rule."""
        ...

    def causes(self, strategy: Strategy, recompute: Recompute) -> Mapping[str, float]:
        """What the seconds of its slowest rank are for; they add up to its step."""
        ...


class _Open(NamedTuple):
    """A split whose layouts break no rule of the split itself, with the choices that break none under it."""

    variant: int
    split: Split
    shapes: tuple[Shape, ...]
    orders: tuple[Order, ...]
    shardings: tuple[Sharding, ...]


class _Node(NamedTuple):
    """A subtree that waits: its bound and what is decided. Without a shape it is a split; ordered, its points."""

    step_s: float
    number: int
    least: Least
    open: _Open
    micro_batch_size: int
    shape: Shape | None
    orders: tuple[Order, ...]
    is_ordered: bool


class Walk:
    """One search over one grid, for one or several recipes.

    Args:
        grid: the points.
        variants: each recipe with its costs; an earlier one is preferred where two cost the same.
        keeper: what is kept.
        is_limited: whether a layout must fit.
        tell: called now and then with the points considered so far.
    """

    __slots__ = ("_grid", "_heap", "_is_limited", "_number", "_rules", "_tell", "_variants", "keeper", "tally")

    def __init__(
        self,
        grid: Grid,
        variants: tuple[tuple[Recipe, Costs], ...],
        keeper: Keeper,
        *,
        is_limited: bool = True,
        tell: Callable[[int], None] | None = None,
    ) -> None:
        self._grid = grid
        self._variants = variants
        self._rules = tuple(ShapeRules(costs.refusals, grid.base) for _, costs in variants)
        self._is_limited = is_limited
        self._heap: list[_Node] = []
        self._number = 0
        self._tell = tell
        self.keeper = keeper
        self.tally = Tally()

    def run(self) -> None:
        """Consider every point of the grid once."""
        for variant in range(len(self._variants)):
            for turn, split in enumerate(self._grid.splits()):
                self._begin(variant, split)
                if self._tell is not None and not turn % TURNS:
                    self._tell(self.tally.num_considered)
        for turn in count():
            if not self._heap:
                return
            if self._tell is not None and not turn % TURNS:
                self._tell(self.tally.num_considered)
            node = heappop(self._heap)
            costs = self._variants[node.open.variant][1]
            if node.shape is None:
                self._open_split(node, costs)
            elif node.is_ordered:
                self._open_order(node, costs)
            else:
                self._open_shape(node, costs)

    def _begin(self, variant: int, split: Split) -> None:
        """Shape rules of a split and of the choices under it, then its bound."""
        grid, rules, costs = self._grid, self._rules[variant], self._variants[variant][1]
        if reason := rules.of_split(split):
            self.tally.lose("shape", reason, grid.num_below_split(split))
            return
        sizes = len(grid.micro_batch_sizes)
        shapes, orders, shardings = grid.shapes(split), grid.orders(split), grid.shardings(split)
        shapes = self._allowed(shapes, lambda each: rules.of_shape(split, each), sizes * len(orders) * len(shardings))
        orders = self._allowed(orders, lambda each: rules.of_order(split, each), sizes * len(shapes) * len(shardings))
        shardings = self._allowed(
            shardings, lambda each: rules.of_sharding(split, each), sizes * len(shapes) * len(orders)
        )
        below = sizes * len(shapes) * len(orders) * len(shardings)
        if not below:
            return
        least = costs.least_of_split(grid.strategy(split), shapes, orders)
        if not self._is_cut(least, costs, below, _STATE):
            self._push(least, _Open(variant, split, shapes, orders, shardings), 0, None, orders)

    def _allowed(self, choices: tuple[_C, ...], why: Callable[[_C], str | None], below: int) -> tuple[_C, ...]:
        """Choices that no rule refuses; the others are counted with all the points under each of them."""
        kept = []
        for choice in choices:
            reason = why(choice)
            if reason is None:
                kept.append(choice)
            else:
                self.tally.lose("shape", reason, below)
        return tuple(kept)

    def _push(
        self,
        least: Least,
        opened: _Open,
        micro_batch_size: int,
        shape: Shape | None,
        orders: tuple[Order, ...],
        *,
        is_ordered: bool = False,
    ) -> None:
        self._number += 1
        node = _Node(least.step_s, self._number, least, opened, micro_batch_size, shape, orders, is_ordered)
        heappush(self._heap, node)

    def _is_cut(self, least: Least, costs: Costs, below: int, what: str) -> bool:
        """Whether no kind of sharding leaves anything that may matter; if so its points are counted."""
        limit = self._limit_bytes(costs)
        nearest, is_held = math.inf, False
        for step_s, peak in least.pairs.values():
            if peak > limit:
                nearest = min(nearest, peak - limit)
            elif self.keeper.may_matter(step_s, peak):
                return False
            else:
                is_held = True
        if is_held:
            self.tally.lose("time", least.cause, below)
        else:
            self.tally.lose("memory", what, below, nearest)
        return True

    def _is_point_cut(self, step_s: float, peak_bytes: float, costs: Costs, cause: str) -> bool:
        limit = self._limit_bytes(costs)
        if peak_bytes > limit:
            self.tally.lose("memory", _PEAK, 1, peak_bytes - limit)
            return True
        if self.keeper.may_matter(step_s, peak_bytes):
            return False
        self.tally.lose("time", cause, 1)
        return True

    def _limit_bytes(self, costs: Costs) -> float:
        capacity = costs.capacity_bytes
        return math.inf if capacity is None or not self._is_limited else capacity

    def _open_split(self, node: _Node, costs: Costs) -> None:
        """Micro-batches and shapes of a split, each with its own bound."""
        grid, opened = self._grid, node.open
        split, rules = opened.split, self._rules[opened.variant]
        under_shape = len(opened.orders) * len(opened.shardings)
        under_size = len(opened.shapes) * under_shape
        if self._is_cut(node.least, costs, len(grid.micro_batch_sizes) * under_size, _STATE):
            return
        sizes = []
        for size in sorted(grid.micro_batch_sizes):
            if reason := rules.of_batch(split, size):
                self.tally.lose("shape", reason, under_size)
                continue
            why = partial(rules.of_run, split, size)
            orders = self._allowed(opened.orders, why, len(opened.shapes) * len(opened.shardings))
            if orders:
                sizes.append((size, orders))
        for shape in opened.shapes:
            for size, orders in self._not_too_large(opened, shape, sizes, costs):
                least = costs.least_of_shape(grid.strategy(split, size, shape), shape.recompute, orders)
                if not self._is_cut(least, costs, len(orders) * len(opened.shardings), _ACTIVATIONS):
                    self._push(least, opened, size, shape, orders)

    def _not_too_large(self, opened: _Open, shape: Shape, sizes: Sequence[_Sized], costs: Costs) -> Sequence[_Sized]:
        """The micro-batches, smallest first, without those of which even one size down to the smallest cannot fit.

        What the largest of them cannot be below depends on its own number of micro-batches, so what is left is asked
        again: smaller ones are more.
        """
        grid, split, limit = self._grid, opened.split, self._limit_bytes(costs)
        while sizes and not math.isinf(limit):
            number = grid.batch_size // (split.data_parallel * sizes[-1][0])

            def bytes_of(index: int, number: int = number, sizes: Sequence[_Sized] = sizes) -> float:
                strategy = grid.strategy(split, sizes[index][0], shape)
                return costs.least_bytes(strategy, shape.recompute, opened.orders, number)

            first = bisect_right(range(len(sizes)), limit, key=bytes_of)
            if first == len(sizes):
                break
            below = sum(len(orders) for _, orders in sizes[first:]) * len(opened.shardings)
            self.tally.lose("memory", _ACTIVATIONS, below, bytes_of(first) - limit)
            sizes = sizes[:first]
        return sizes

    def _open_shape(self, node: _Node, costs: Costs) -> None:
        """Orders of a shape, each with a bound that costs little and, if that does not cut it, a closer one."""
        opened, size, shape = node.open, node.micro_batch_size, node.shape
        assert shape is not None
        below = len(opened.shardings)
        if self._is_cut(node.least, costs, len(node.orders) * below, _ACTIVATIONS):
            return
        for order in node.orders:
            strategy = self._grid.strategy(opened.split, size, shape, order)
            alone = len(node.orders) > 1  # of one order the node's own bound is that
            if alone and self._is_cut(
                costs.least_of_shape(strategy, shape.recompute, (order,)), costs, below, _ACTIVATIONS
            ):
                continue
            least = costs.least_of_order(strategy, shape.recompute)
            if not self._is_cut(least, costs, below, _ACTIVATIONS):
                self._push(least, opened, size, shape, (order,), is_ordered=True)

    def _open_order(self, node: _Node, costs: Costs) -> None:
        """Shardings of an order: their bytes first, which cost less to know than their seconds."""
        grid, opened, size, shape, order = self._grid, node.open, node.micro_batch_size, node.shape, node.orders[0]
        assert shape is not None
        if self._is_cut(node.least, costs, len(opened.shardings), _ACTIVATIONS):
            return
        recompute, cause = shape.recompute, node.least.cause
        held = []
        for sharding in opened.shardings:
            step_s, least_bytes = node.least.pairs[sharding.kind]
            if self._is_point_cut(step_s, least_bytes, costs, cause):
                continue
            strategy = grid.strategy(opened.split, size, shape, order, sharding)
            peak = costs.peak_bytes(strategy, recompute)
            if not self._is_point_cut(step_s, peak, costs, cause):
                held.append((sharding.kind, strategy, peak))
        if not held:
            return
        kinds = frozenset(kind for kind, _, _ in held)
        least = costs.least_of_pipeline(grid.strategy(opened.split, size, shape, order), recompute, kinds)
        for kind, strategy, peak in held:
            if not self._is_point_cut(least.pairs[kind][0], peak, costs, cause):
                self._evaluate(opened.variant, costs, strategy, recompute, least)

    def _evaluate(self, variant: int, costs: Costs, strategy: Strategy, recompute: Recompute, least: Least) -> None:
        estimate = costs.estimate(strategy, recompute)
        self.tally.num_evaluated += 1
        cause = least.cause if estimate.step_s - least.step_s < least.cause_s else _SHARING
        if not self._is_point_cut(estimate.step_s, estimate.peak_bytes, costs, cause):
            self.tally.lose("time", cause, 1)  # until it turns out to be kept
            self.keeper.offer(Candidate(strategy, self._recipe(variant, recompute), estimate, cause), variant)

    def _recipe(self, variant: int, recompute: Recompute) -> Recipe:
        recipe = self._variants[variant][0]
        return recipe if recipe.recompute == recompute else replace(recipe, recompute=recompute)
