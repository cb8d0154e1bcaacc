"""`LeastMemory`: bytes that the fullest rank of no layout of a subtree is below.

The first rank has the embedding and the activations of most micro-batches, the last one the head and the logits; a rank
that holds the mean of all training state is another bound. Each is priced by `memory.skeleton`, under every shard level
with the largest group, which leaves least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from torchledger.planner.bound import PieceFloor
from torchledger.planner.bound_rows import HoldRow
from torchledger.planner.estimator import Estimator
from torchledger.planner.memory import Skeleton, skeleton
from torchledger.planner.search_grid import Axes, ShardKind
from torchledger.planner.stack import stack
from torchledger.planner.totals import StageTotals
from torchledger.spec import Strategy

#: Parts of a rank's memory are whole bytes each, so their sum may be this much below the sum of the exact ones.
_ROUNDING = 16


class RankBytes(NamedTuple):
    """Activations of one rank of a tensor and context parallel group, for one sequence.

    Attributes:
        kept: of the layer that keeps least.
        beside: what the backward pass of the layer that needs least holds beside.
        spike: what the head holds at the loss.
        less: by how much beside and spike are less whatever the number of sequences.
    """

    kept: float
    beside: float
    spike: float
    less: float

    def of(self, size: int) -> RankBytes:
        """The same for a micro-batch of so many sequences."""
        return RankBytes(self.kept * size, self.beside * size, self.spike * size, self.less)


class _Ends(NamedTuple):
    """Skeletons under one sharding: of the first and the last rank by how many layers they hold, and of the mean."""

    first: dict[int, Skeleton]
    last: dict[int, Skeleton]
    mean: float


class LeastMemory:
    """Least bytes of layouts of one question.

    Args:
        estimator: of the question.
        base: the stack.
        axes: the shard levels on the grid.
        floors: of the blocks; parameters are read from them.
    """

    __slots__ = ("_estimator", "_floors", "_known", "_levels", "_resident", "_stack")

    def __init__(self, estimator: Estimator, base: Strategy, axes: Axes, floors: Sequence[PieceFloor]) -> None:
        self._estimator = estimator
        self._stack = stack(base.stack)
        self._floors = floors
        self._levels = axes.shard_levels
        self._resident = 1 - estimator.recipe.offload_activations
        self._known: dict[tuple[int, ...], dict[ShardKind, _Ends]] = {}

    def bytes_of(self, strategy: Strategy, held: RankBytes, rows: Sequence[HoldRow]) -> dict[ShardKind, float]:
        """The least of layouts with these numbers of ranks and these orders, by kind of sharding.

        `held` is of one micro-batch.
        """
        kept = held.kept * self._resident
        beside, spike = max(0.0, held.beside + held.less), max(0.0, held.spike + held.less)
        found = {}
        for kind, (firsts, lasts, mean) in self._ends(strategy, rows).items():
            least = math.inf
            for row in rows:
                first, last = firsts[row.first], lasts[row.last]
                most = max(
                    first.standing + first.at_layer + kept * row.alive_first + beside,
                    last.standing + last.at_head + kept * row.alive_last + spike,
                )
                least = min(least, most)
            found[kind] = max(least, mean) - _ROUNDING
        return found

    def _ends(self, strategy: Strategy, rows: Sequence[HoldRow]) -> dict[ShardKind, _Ends]:
        key = (
            strategy.tensor_parallel,
            strategy.context_parallel,
            strategy.data_parallel,
            strategy.pipeline_parallel,
            strategy.expert_parallel,
            strategy.expert_tensor_parallel,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = {}
            for sharding in self._shardings(strategy):
                mean = self._skeleton(strategy, sharding, self._mean(strategy)).standing
                found[sharding] = _Ends({}, {}, mean)
        for sharding, ends in found.items():
            for row in rows:
                if row.first not in ends.first:
                    ends.first[row.first] = self._skeleton(
                        strategy, sharding, self._end(strategy, "embedding", row.first)
                    )
                if row.last not in ends.last:
                    ends.last[row.last] = self._skeleton(strategy, sharding, self._end(strategy, "head", row.last))
        return found

    def _shardings(self, strategy: Strategy) -> list[ShardKind]:
        if strategy.data_parallel * strategy.context_parallel == 1:
            return [(self._levels[0], True)]
        has = self._stack.shard_levels if strategy.pipeline_parallel == 1 else self._stack.pipeline_shard_levels
        levels = [level for level in self._levels if level in has] or list(self._levels)
        return [(level, reshard) for level in levels for reshard in ((True, False) if level == 3 else (True,))]

    def _skeleton(self, strategy: Strategy, sharding: ShardKind, totals: StageTotals) -> Skeleton:
        level, reshard = sharding
        sharded = _sharded(strategy, level, reshard=reshard)
        island = self._estimator.cluster.chips_per_island
        return skeleton(totals, self._estimator.recipe, sharded, self._stack, chips_per_island=island)

    def _mean(self, strategy: Strategy) -> StageTotals:
        stages = strategy.pipeline_parallel
        return self._totals(strategy, [(floor, floor.num_layers / stages) for floor in self._floors], stages)

    def _end(self, strategy: Strategy, kind: str, num_layers: int) -> StageTotals:
        """A rank with the embedding or the head and so many layers of the plainest kind."""
        stages = strategy.pipeline_parallel
        if stages == 1:
            return self._totals(strategy, [(floor, floor.num_layers) for floor in self._floors], 1)
        plain = _plainest([floor for floor in self._floors if floor.kind == "layer"], strategy.tensor_parallel)
        ends = [(floor, 1.0) for floor in self._floors if floor.kind == kind]
        return self._totals(strategy, [*ends, *((floor, num_layers) for floor in plain)], stages)

    def _totals(self, strategy: Strategy, held: Sequence[tuple[PieceFloor, float]], stages: int) -> StageTotals:
        ranks = strategy.tensor_parallel
        own = 1 / (strategy.expert_parallel * (strategy.expert_tensor_parallel or ranks))
        layers = [(floor, count) for floor, count in held if floor.kind == "layer" and count >= 1]
        dense = min((floor.parameters.at(ranks) for floor, _ in layers), default=0.0)
        expert = min((floor.expert_parameters * own for floor, _ in layers), default=0.0)
        whole = [(floor.kind, floor.parameters.at(ranks)) for floor, count in held if count >= 1]
        embedding = sum(size for kind, size in whole if kind == "embedding")
        head = sum(size for kind, size in whole if kind == "head")
        return StageTotals(
            num_parameters=int(sum(floor.parameters.at(ranks) * count for floor, count in held)),
            num_expert_parameters=int(sum(floor.expert_parameters * own * count for floor, count in held)),
            num_trainable=int(sum(floor.trainable.at(ranks) * count for floor, count in held)),
            num_trainable_expert=int(sum(floor.expert_trainable * own * count for floor, count in held)),
            num_ends=int(embedding + head),
            largest_layer=int(dense),
            largest_layer_expert=int(expert),
            embedding=int(embedding),
            head=int(head),
            largest_tensor=0,
            activation_bytes=0.0,
            micro_batch_bytes=0,
            layer_kept_bytes=0,
            layer_bytes=0,
            recomputed_bytes=0,
            head_bytes=0,
            largest_block=0,
            output_bytes=0,
            num_neighbours=min(1, stages - 1),
        )


def _sharded(strategy: Strategy, level: int, *, reshard: bool) -> Strategy:
    return Strategy(
        stack=strategy.stack,
        data_parallel=strategy.data_parallel,
        shard_level=level,
        reshard=reshard,
        prefetch=strategy.prefetch,
        tensor_parallel=strategy.tensor_parallel,
        vocab_parallel=strategy.vocab_parallel,
        pipeline_parallel=strategy.pipeline_parallel,
        context_parallel=strategy.context_parallel,
        expert_parallel=strategy.expert_parallel,
        expert_tensor_parallel=strategy.expert_tensor_parallel,
    )


def _plainest(layers: Sequence[PieceFloor], ranks: int) -> Sequence[PieceFloor]:
    """The kind of layer with the fewest parameters, if it has fewest of both kinds."""
    least = min(layers, key=lambda each: (each.parameters.at(ranks), each.expert_parameters))
    return (least,) if all(least.expert_parameters <= each.expert_parameters for each in layers) else ()
