"""`LeastMemory`: bytes that the fullest rank of no layout of a subtree is below.

The first rank has the embedding and the activations of most micro-batches, the last one the head and the logits; a rank
that holds the mean of all training state is another bound. Each is priced by `memory.skeleton`, under every shard level
with the largest group, which leaves least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from torchledger.planner.bound import PieceFloor
from torchledger.planner.bound_rows import Counts, HoldRow
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
        kept: by block; nothing of the head, whose own is in its spike.
        beside: by block, what the backward pass of a layer holds beside.
        spike: what the head holds at the loss.
        less: by how much beside and spike are less whatever the number of sequences.
    """

    kept: tuple[float, ...]
    beside: tuple[float, ...]
    spike: float
    less: float


class _Ends(NamedTuple):
    """Skeletons under one sharding: of the first and the last rank by what they hold, and of the mean."""

    first: dict[Counts, Skeleton]
    last: dict[Counts, Skeleton]
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

    def bytes_of(
        self, strategy: Strategy, held: RankBytes, size: int, rows: Sequence[HoldRow]
    ) -> dict[ShardKind, float]:
        """The least of layouts with these numbers of ranks and these orders, by kind of sharding.

        `held` is of one sequence, `size` how many a micro-batch has.
        """
        alive = []
        for row in rows:
            kept = [
                sum(each * count for each, count in zip(held.kept, counts, strict=True)) * size * self._resident
                for counts in (row.alive_first, row.alive_last)
            ]
            layer = max((each for each, count in zip(held.beside, row.first, strict=True) if count), default=0.0)
            first = kept[0] + max(0.0, layer * size + held.less)
            alive.append((row.first, first, row.last, kept[1] + max(0.0, held.spike * size + held.less)))
        found = {}
        for kind, (firsts, lasts, mean) in self._ends(strategy, rows).items():
            least = math.inf
            for first_blocks, first, last_blocks, last in alive:
                one, other = firsts[first_blocks], lasts[last_blocks]
                most = max(one.standing + one.at_layer + first, other.standing + other.at_head + last)
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
                    ends.first[row.first] = self._skeleton(strategy, sharding, self._totals(strategy, row.first))
                if row.last not in ends.last:
                    ends.last[row.last] = self._skeleton(strategy, sharding, self._totals(strategy, row.last))
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
        return self._totals(strategy, [floor.num_layers / stages for floor in self._floors])

    def _totals(self, strategy: Strategy, counts: Sequence[float]) -> StageTotals:
        """Of a rank with so many of each block; a part of one has no largest layer, embedding or head."""
        ranks, floors = strategy.tensor_parallel, self._floors
        own = 1 / (strategy.expert_parallel * (strategy.expert_tensor_parallel or ranks))
        dense = [floor.parameters.at(ranks) for floor in floors]
        trained = [floor.trainable.at(ranks) for floor in floors]
        whole = [(floor, size) for floor, size, count in zip(floors, dense, counts, strict=True) if count >= 1]
        layers = [(size, floor.expert_parameters * own) for floor, size in whole if floor.kind not in _ENDS]
        largest = max(layers, key=sum, default=(0.0, 0.0))
        embedding = sum(size for floor, size in whole if floor.kind == "embedding")
        head = sum(size for floor, size in whole if floor.kind == "head")
        return StageTotals(
            num_parameters=int(sum(map(mul, dense, counts))),
            num_expert_parameters=int(sum(map(mul, (each.expert_parameters * own for each in floors), counts))),
            num_trainable=int(sum(map(mul, trained, counts))),
            num_trainable_expert=int(sum(map(mul, (each.expert_trainable * own for each in floors), counts))),
            num_ends=int(embedding + head),
            largest_layer=int(largest[0]),
            largest_layer_expert=int(largest[1]),
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
            num_neighbours=min(1, strategy.pipeline_parallel - 1),
        )


_ENDS = frozenset({"embedding", "head"})


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
