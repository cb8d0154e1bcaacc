"""`LeastMemory`: bytes that the fullest rank of no layout of a subtree is below.

The first rank has the embedding and the activations of most micro-batches, the last one the head and the logits, one
between them perhaps larger layers; a rank that holds the mean of all training state is another bound. Each is priced by
`memory.skeleton`, under every shard level with the largest group, which leaves least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

from torchledger.planner.block import is_added_up, is_in_root
from torchledger.planner.bound import PieceFloor
from torchledger.planner.bound_rows import Counts, Held, HoldRow
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
        head: what the head keeps of a micro-batch before the one whose loss it is at.
        beside: by block, what the backward pass of a layer holds beside.
        spike: what the head holds at the loss.
        less: by how much beside and spike are less whatever the number of sequences.
        output: of the residual stream, one rank's own part.
        num_gathered: how many such parts it gathers.
    """

    kept: tuple[float, ...]
    head: float
    beside: tuple[float, ...]
    spike: float
    less: float
    output: float
    num_gathered: int

    def of(self, rank: Held, resident: float) -> RankShares:
        """Those of one rank, of which such a share stays on the device."""
        kept = sum(map(mul, self.kept, rank.alive)) + self.head * max(0, rank.alive[-1] - 1)
        beside = max((each for each, count in zip(self.beside, rank.blocks, strict=True) if count), default=0.0)
        sent = self.output * (rank.num_neighbours + self.num_gathered)
        return RankShares(kept * resident + sent, beside, self.spike if rank.blocks[-1] else None, self.less)


class RankShares(NamedTuple):
    """Activations of one pipeline rank, for micro-batches of one sequence.

    Attributes:
        kept: of all that are in flight, and buffers of what it sends and receives.
        beside: what the backward pass of a layer holds beside.
        spike: what the head holds at the loss; nothing where there is none.
        less: by how much beside and spike are less whatever the number of sequences.
    """

    kept: float
    beside: float
    spike: float | None
    less: float

    def peak_bytes(self, size: int, bare: Skeleton, capacity: float) -> float:
        """With micro-batches of so many sequences on top of a skeleton, in a layer's backward pass or at the loss."""
        beside = self.beside * size + self.less
        most = bare.at_layer + beside if beside > 0 else bare.at_layer
        if self.spike is not None:
            most = max(most, bare.at_head + max(0.0, self.spike * size + self.less))
        most += bare.standing + self.kept * size
        return max(most, min(most + bare.pool, capacity)) if bare.pool else most


class _Skeletons(NamedTuple):
    """Skeletons of ranks by what they hold, and standing bytes of the mean."""

    ranks: dict[tuple[Counts, int], Skeleton]
    mean: float


class _BySharding(NamedTuple):
    """Skeletons of every kind of sharding, what none of them is below, and the rows whose ranks are among them."""

    kinds: dict[ShardKind, _Skeletons]
    least: _Skeletons
    rows: dict[int, Sequence[HoldRow]]


#: By row and rank: what it holds and its neighbours, and its activations.
_RowShares = list[list[tuple[tuple[Counts, int], RankShares]]]


class LeastMemory:
    """Least bytes of layouts of one question.

    Args:
        estimator: of the question.
        base: the stack.
        axes: the shard levels on the grid.
        floors: of the blocks; parameters are read from them.
    """

    __slots__ = (
        "_capacity",
        "_estimator",
        "_floors",
        "_known",
        "_levels",
        "_resident",
        "_shares",
        "_shares_of_rows",
        "_stack",
    )

    def __init__(self, estimator: Estimator, base: Strategy, axes: Axes, floors: Sequence[PieceFloor]) -> None:
        self._estimator = estimator
        self._stack = stack(base.stack)
        self._floors = floors
        self._levels = axes.shard_levels
        self._capacity = math.inf if estimator.capacity_bytes is None else estimator.capacity_bytes
        self._resident = 1 - estimator.recipe.offload_activations
        self._known: dict[tuple[int, ...], _BySharding] = {}
        self._shares: dict[tuple[RankBytes, Held], RankShares] = {}
        #: by which objects were asked for; they are kept, so that no other object has their number
        self._shares_of_rows: dict[tuple[int, int], tuple[RankBytes, Sequence[HoldRow], _RowShares]] = {}

    def bytes_of(
        self, strategy: Strategy, held: RankBytes, size: int, rows: Sequence[HoldRow]
    ) -> dict[ShardKind, float]:
        """The least of layouts with these numbers of ranks and these orders, by kind of sharding.

        `held` is of one sequence, `size` how many a micro-batch has. Where that of no kind fits, it is the same
        for all of them.
        """
        by, alive = self._skeletons_of(strategy, rows), self._alive(held, rows)
        capacity = self._capacity
        most = _least_bytes(alive, size, by.least, capacity)
        if most > capacity:  # whatever the sharding
            return dict.fromkeys(by.kinds, most)
        return {kind: _least_bytes(alive, size, skeletons, capacity) for kind, skeletons in by.kinds.items()}

    def least_bytes(self, strategy: Strategy, held: RankBytes, size: int, rows: Sequence[HoldRow]) -> float:
        """The same for any kind of sharding."""
        least = self._skeletons_of(strategy, rows).least
        return _least_bytes(self._alive(held, rows), size, least, self._capacity)

    def _alive(self, held: RankBytes, rows: Sequence[HoldRow]) -> _RowShares:
        known = self._shares_of_rows.get((id(held), id(rows)))
        if known is None:
            found = [[((rank.blocks, rank.num_neighbours), self._share(held, rank)) for rank in row] for row in rows]
            known = self._shares_of_rows[id(held), id(rows)] = held, rows, found
        return known[2]

    def _share(self, held: RankBytes, rank: Held) -> RankShares:
        found = self._shares.get((held, rank))
        if found is None:
            found = self._shares[held, rank] = held.of(rank, self._resident)
        return found

    def _skeletons_of(self, strategy: Strategy, rows: Sequence[HoldRow]) -> _BySharding:
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
            mean = self._mean(strategy)
            kinds = {
                sharding: _Skeletons({}, self._skeleton(strategy, sharding, mean).standing)
                for sharding in self._shardings(strategy)
            }
            least = _Skeletons({}, min(each.mean for each in kinds.values()))
            found = self._known[key] = _BySharding(kinds, least, {})
        if id(rows) in found.rows:
            return found
        found.rows[id(rows)] = rows
        for row in rows:
            for rank in row:
                if (rank.blocks, rank.num_neighbours) not in found.least.ranks:
                    self._add(found, strategy, rank)
        return found

    def _add(self, found: _BySharding, strategy: Strategy, rank: Held) -> None:
        key = (rank.blocks, rank.num_neighbours)
        totals = self._totals(strategy, *key)
        for sharding, skeletons in found.kinds.items():
            skeletons.ranks[key] = self._skeleton(strategy, sharding, totals)
        all_ = [skeletons.ranks[key] for skeletons in found.kinds.values()]
        standing = min(each.standing for each in all_)
        found.least.ranks[key] = Skeleton(
            standing,
            min(each.standing + each.at_layer for each in all_) - standing,
            min(each.standing + each.at_head for each in all_) - standing,
            min(each.pool for each in all_),
        )

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
        return self._totals(strategy, [floor.num_layers / stages for floor in self._floors], min(1, stages - 1))

    def _is_in_root(self, kind: str, strategy: Strategy) -> bool:
        return is_in_root(kind, self._estimator.spec, strategy, self._stack)

    def _is_added_up(self, kind: str, strategy: Strategy) -> bool:
        return is_added_up(kind, self._estimator.spec, strategy, self._stack)

    def _totals(self, strategy: Strategy, counts: Sequence[float], num_neighbours: int) -> StageTotals:
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
            root=int(embedding * self._is_in_root("embedding", strategy) + head * self._is_in_root("head", strategy)),
            root_added=(
                int(embedding * self._is_added_up("embedding", strategy)),
                int(head * self._is_added_up("head", strategy)),
            ),
            largest_tensor=0,
            activation_bytes=0.0,
            micro_batch_bytes=0,
            layer_kept_bytes=0,
            layer_bytes=0,
            recomputed_bytes=0,
            head_bytes=0,
            largest_block=0,
            output_bytes=0,
            num_neighbours=num_neighbours,
        )


def _least_bytes(rows: _RowShares, size: int, skeletons: _Skeletons, capacity: float) -> float:
    """Of the fullest rank of the row in which that has least."""
    ranks, mean = skeletons
    least = math.inf
    for row in rows:
        most = mean
        for rank, shares in row:
            peak = shares.peak_bytes(size, ranks[rank], capacity)
            if peak > most:
                most = peak
                if most >= least:
                    break
        else:
            least = min(least, most)
    return least - _ROUNDING


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
