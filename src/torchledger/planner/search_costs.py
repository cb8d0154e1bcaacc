"""`LayoutCosts`: what the search asks of layouts, answered by the estimator and by bounds."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from torchledger.planner.bound_layout import Bounds
from torchledger.planner.causes import stage_seconds
from torchledger.planner.estimator import Estimator
from torchledger.planner.outcome import Estimate
from torchledger.planner.refusal import Refusal
from torchledger.planner.rules import refusals
from torchledger.planner.search_grid import Axes, Order, Shape, ShardKind
from torchledger.planner.search_walk import Least
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute


class LayoutCosts:
    """Costs of layouts of one question.

    Args:
        estimator: of the question.
        base: the stack and what else no axis decides.
        axes: the choices on the grid.
    """

    __slots__ = ("_bounds", "_estimator")

    def __init__(self, estimator: Estimator, base: Strategy, axes: Axes) -> None:
        self._estimator = estimator
        self._bounds = Bounds(estimator, base, axes)

    @property
    def capacity_bytes(self) -> int | None:
        """What a rank may use; nothing where the chip's memory is unknown."""
        return self._estimator.capacity_bytes

    def refusals(self, strategy: Strategy) -> Iterable[Refusal]:
        """The shape rules that a layout breaks."""
        return refusals(self._estimator.spec, self._estimator.recipe, strategy, self._estimator.cluster)

    def least_of_split(self, strategy: Strategy, shapes: Sequence[Shape], orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts with these numbers of ranks and one of these shapes and orders."""
        return self._bounds.of_split(strategy, shapes, orders)

    def least_of_shape(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts that differ in order, one of these, and sharding only."""
        return self._bounds.of_shape(strategy, recompute, orders)

    def least_bytes(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...], number: int) -> float:
        """What no layout with micro-batches of this size or larger ones, so many or more, is below."""
        return self._bounds.least_bytes(strategy, recompute, orders, number)

    def least_of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only."""
        return self._bounds.of_order(strategy, recompute)

    def least_of_pipeline(self, strategy: Strategy, recompute: Recompute, kinds: Collection[ShardKind]) -> Least:
        """The same for some kinds of sharding, closer, and dearer to know."""
        return self._bounds.of_pipeline(strategy, recompute, kinds)

    def peak_bytes(self, strategy: Strategy, recompute: Recompute) -> int:
        """Bytes of the fullest rank of one layout."""
        return self._estimator.at(recompute).peak_bytes(strategy)

    def estimate(self, strategy: Strategy, recompute: Recompute) -> Estimate:
        """Seconds and bytes of one layout."""
        return self._estimator.estimate(strategy, recompute)

    def causes(self, strategy: Strategy, recompute: Recompute) -> Mapping[str, float]:
        """What the seconds of its slowest rank are for; they add up to its step."""
        estimator = self._estimator.at(recompute)
        step, stages = estimator.step(strategy), estimator.stages(strategy)
        found = [
            stage_seconds(
                stage,
                index,
                step,
                strategy,
                estimator.rules(strategy),
                fabric=estimator.fabric,
                constants=estimator.constants,
            )
            for index, stage in enumerate(stages)
        ]
        return min(found, key=lambda each: each.get("pipeline bubble", 0.0))
