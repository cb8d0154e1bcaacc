"""`ShapeRules`: which choices no layout can have, each asked once for all the layouts that share them.

A rule says which fields it reads. So a rule that reads tensor and context parallelism only is asked once for each pair
of their values, with everything else at its plainest, and its answer holds for the whole subtree. A rule may read the
fields of one of the groups below; comparing the search with every point of drawn grids watches over that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from torchledger.planner.search_grid import Order, Shape, Sharding, Split
from torchledger.spec import Strategy

#: Fixed for a whole search, so decided from its beginning.
_ALWAYS = frozenset(
    {"stack", "precision", "stage_layers", "prefetch", "vocab_parallel", "overlap_data", "overlap_tensor"}
)


class Refused(Protocol):
    """A shape rule that a layout breaks."""

    @property
    def reason(self) -> str:
        """The rule and the numbers that break it."""
        ...

    @property
    def fields(self) -> frozenset[str]:
        """The fields that the rule reads: every layout that shares their values breaks it too."""
        ...


class ShapeRules:
    """The rules of one question, with memory.

    Args:
        refusals: the rules that a layout breaks.
        base: what no axis decides.
    """

    __slots__ = ("_base", "_known", "_refusals")

    def __init__(self, refusals: Callable[[Strategy], Iterable[Refused]], base: Strategy) -> None:
        self._refusals = refusals
        self._base = base
        self._known: dict[tuple[tuple[str, object], ...], str | None] = {}

    def of_split(self, split: Split) -> str | None:
        """Why no layout has these numbers of ranks; nothing if some may."""
        return self._ask(
            tensor_parallel=split.tensor_parallel, expert_tensor_parallel=split.expert_tensor_parallel
        ) or self._ask(
            data_parallel=split.data_parallel,
            context_parallel=split.context_parallel,
            expert_parallel=split.expert_parallel,
        )

    def of_shape(self, split: Split, shape: Shape) -> str | None:
        """Why no layout has this way of sharing a layer."""
        return self._ask(
            tensor_parallel=split.tensor_parallel,
            context_parallel=split.context_parallel,
            sequence_parallel=shape.sequence_parallel,
            context_kind=shape.context_kind,
        )

    def of_order(self, split: Split, order: Order) -> str | None:
        """Why no layout has this schedule over these stages."""
        return self._ask(
            pipeline_parallel=split.pipeline_parallel, schedule=order.schedule, virtual_stages=order.virtual_stages
        )

    def of_sharding(self, split: Split, sharding: Sharding) -> str | None:
        """Why no layout has this sharding."""
        reason = self._ask(
            data_parallel=split.data_parallel,
            pipeline_parallel=split.pipeline_parallel,
            shard_level=sharding.shard_level,
            shard_group=sharding.shard_group,
            reshard=sharding.reshard,
        )
        if reason or not sharding.shard_group or split.expert_parallel == 1:
            return reason
        return self._ask(  # experts are taken out of one group of those that share
            data_parallel=split.data_parallel,
            context_parallel=split.context_parallel,
            tensor_parallel=split.tensor_parallel,
            expert_parallel=split.expert_parallel,
            expert_tensor_parallel=split.expert_tensor_parallel,
            shard_level=sharding.shard_level,
            shard_group=sharding.shard_group,
        )

    def of_batch(self, split: Split, micro_batch_size: int) -> str | None:
        """Why no layout has these micro-batches."""
        return self._ask(data_parallel=split.data_parallel, micro_batch_size=micro_batch_size)

    def of_run(self, split: Split, micro_batch_size: int, order: Order) -> str | None:
        """Why no layout has these micro-batches in this order."""
        return self._ask(
            data_parallel=split.data_parallel,
            micro_batch_size=micro_batch_size,
            pipeline_parallel=split.pipeline_parallel,
            schedule=order.schedule,
            virtual_stages=order.virtual_stages,
        )

    def _ask(self, **decided: object) -> str | None:
        key = tuple(decided.items())
        if key not in self._known:
            fields = _ALWAYS | decided.keys()
            refusals = self._refusals(self._with(decided))
            self._known[key] = next((each.reason for each in refusals if each.fields <= fields), None)
        return self._known[key]

    def _with(self, decided: dict[str, object]) -> Strategy:
        base = self._base
        plain: dict[str, object] = {
            "stack": base.stack,
            "prefetch": base.prefetch,
            "vocab_parallel": base.vocab_parallel,
            "overlap_data": base.overlap_data,
            "overlap_tensor": base.overlap_tensor,
            "micro_batch_size": 1,
        }
        return Strategy(**{**plain, **decided})  # type: ignore[arg-type]
