"""`Bounds`: seconds and bytes that no layout of a subtree is below, from the floors of its blocks.

bound_rank.py      what one rank does and keeps for one micro-batch
bound_pipeline.py  what the ranks of a pipeline take for all of them
bound_memory.py    what ranks hold
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace

from torchledger.formula import parts
from torchledger.planner.bound import Share
from torchledger.planner.bound_exchange import Exchanged, LeastExchanges
from torchledger.planner.bound_memory import LeastMemory
from torchledger.planner.bound_pipeline import busiest_s, least_pipeline_s
from torchledger.planner.bound_rank import Rank, RankFloors
from torchledger.planner.bound_rows import Placing, Rows
from torchledger.planner.bound_sharing import LeastSharing, with_copies
from torchledger.planner.data_parallel import exposed
from torchledger.planner.estimator import Estimator
from torchledger.planner.search_grid import RECOMPUTES, Axes, Order, Shape, ShardKind
from torchledger.planner.search_walk import Least
from torchledger.planner.stack import stack
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute

#: Seconds of blocks: (forward, backward, weight gradient), and (all but the last, the last).
_Blocks = tuple[list[tuple[float, float, float]], list[tuple[float, float]]]


class Bounds:
    """Bounds of layouts of one question.

    Args:
        estimator: of the question.
        base: the stack and what else no axis decides.
        axes: the choices on the grid; its shard levels say what the least state is.
    """

    def __init__(self, estimator: Estimator, base: Strategy, axes: Axes) -> None:
        self._estimator = estimator
        self._base = base
        self._stack = stack(base.stack)
        self._exchanges = LeastExchanges(estimator, self._stack, parts(estimator.spec, estimator.recipe))
        self._ranks = RankFloors(estimator, base)
        self._blocks: dict[tuple[int, int], _Blocks] = {}
        constants = estimator.constants
        self._host = estimator.host_rules(base)
        self._optimizer_s = estimator.update_s(base) + self._host.gradient_s + self._host.weight_s
        doublings = math.log2(max(1, estimator.cluster.num_islands))
        self._stretch = constants.overhead * (1 + constants.straggler * doublings)
        self._capacity = math.inf if estimator.capacity_bytes is None else estimator.capacity_bytes
        plain = self._ranks.floors_of(Strategy(), estimator.recipe.recompute)
        self._memory = LeastMemory(estimator, base, axes, plain)
        self._num_layers = [floor.num_layers for floor in plain]
        kinds = tuple((floor.kind, floor.runs) for floor in plain)
        together = self._stack.embeddings_as_layers
        self._placing = Placing(estimator.spec, kinds, embeddings_as_layers=together)
        self._sharing = LeastSharing(estimator, base, axes, plain)
        self._shares = any(level in self._stack.shard_levels for level in axes.shard_levels if level)
        self._trainable = Share(
            sum(each.trainable.whole * each.num_layers for each in plain),
            sum(each.trainable.divided * each.num_layers for each in plain),
        )

    def of_shape(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts that differ in order (one of `orders`) and sharding only.

        Where bytes alone rule them all out, the bound of seconds is 0: exchanges need not be priced.
        """
        size, stages = strategy.micro_batch_size, strategy.pipeline_parallel
        number = self._estimator.recipe.batch_size // (strategy.data_parallel * size)
        found = self._rows(strategy, orders, number)
        peaks = self._memory.bytes_of(strategy, self._ranks.held(strategy, recompute), size, found.hold)
        if min(peaks.values()) > self._capacity:
            return Least({kind: (0.0, peak) for kind, peak in peaks.items()}, "matmul", 0.0)
        rank, exchanged = self._ranks.of(strategy, recompute), self._exchanges.of(strategy, recompute)
        blocks, together = self._together(rank, exchanged)
        pipeline_s, bubble_s = least_pipeline_s(self._num_layers, together, stages, number, found.time)
        plain_s, pairs = self._step_s(strategy, pipeline_s), {}
        for kind, peak in peaks.items():
            step_s = plain_s
            if peak <= self._capacity and (shared := self._sharing.of(strategy, kind)) is not None:
                seconds, _ = least_pipeline_s(self._num_layers, self._with(blocks, shared), stages, number, found.time)
                step_s = self._step_s(strategy, seconds)
            pairs[kind] = (step_s, peak)
        cause, cause_s = _cause(exchanged, bubble_s, rank.again_s, number / stages)
        return Least(pairs, cause, cause_s)

    def _together(self, rank: Rank, exchanged: Exchanged) -> _Blocks:
        """Blocks with what is sent in them, remembered by the objects, which are remembered themselves."""
        key = (id(rank), id(exchanged))
        known = self._blocks.get(key)
        if known is None:
            blocks, drag = [], self._estimator.constants.drag
            for part, sent in zip(rank.parts, exchanged.blocks, strict=True):
                phases = [each.with_sent(beside, drag) for each, beside in zip(part.phases, sent, strict=True)]
                blocks.append((phases[0], phases[1] + phases[2], phases[3]))
            plain = [(forward + backward, weight) for forward, backward, weight in blocks]
            known = self._blocks[key] = (blocks, plain)
        return known

    def least_bytes(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...], number: int) -> float:
        """What no layout with micro-batches of this size or larger ones, so many or more, is below.

        More of them are more in flight, but for interleaved ones that fill no last group: so all groups are full here.
        """
        full = number - number % strategy.pipeline_parallel or number
        rows = self._rows(strategy, orders, full).hold
        return self._memory.least_bytes(
            strategy, self._ranks.held(strategy, recompute), strategy.micro_batch_size, rows
        )

    def _with(
        self, blocks: Sequence[tuple[float, float, float]], shared: Sequence[tuple[float, float]]
    ) -> list[tuple[float, float]]:
        """Blocks (forward, backward, weight gradient) with what sharing adds to each: (all but the last, the last)."""
        drag, overlaps = self._estimator.constants.drag, self._base.overlap_data
        return [
            (
                forward
                + exposed(gather, forward, drag, overlaps=overlaps)
                + backward
                + exposed(again, backward + weight, drag, overlaps=overlaps),
                weight,
            )
            for (forward, backward, weight), (gather, again) in zip(blocks, shared, strict=True)
        ]

    def of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only, with the seconds of blocks as they are."""
        estimator = self._estimator.at(recompute)
        costed, stages = estimator.costed(strategy), estimator.stages(strategy)
        number = estimator.recipe.batch_size // (strategy.data_parallel * strategy.micro_batch_size)
        bound = self.of_shape(strategy, recompute, (Order(strategy.schedule, strategy.virtual_stages),))
        blocks = [
            (cost.forward.seconds, cost.recompute.seconds + cost.backward.seconds, cost.weight.seconds)
            for cost in costed.costs
        ]
        alone = [(f + b, w) for f, b, w in with_copies(costed.pieces, blocks, self._host, self._estimator.constants)]
        plain = self._step_s(strategy, busiest_s(costed, stages, alone, number, strategy))
        pairs = {}
        for kind, (step_s, peak) in bound.pairs.items():
            seconds = plain
            if peak <= self._capacity and (shared := self._sharing.of(strategy, kind)) is not None:
                seconds = self._step_s(
                    strategy, busiest_s(costed, stages, self._with(blocks, shared), number, strategy)
                )
            pairs[kind] = (max(step_s, seconds, plain), peak)
        return bound._replace(pairs=pairs)

    def of_pipeline(self, strategy: Strategy, recompute: Recompute, kinds: Collection[ShardKind]) -> Least:
        """The same with the pipeline as it is, for kinds of sharding that exchange nothing in it."""
        bound = self.of_order(strategy, recompute)
        estimator = self._estimator.at(recompute)
        pairs = dict(bound.pairs)
        for kind in kinds:
            if self._sharing.of(strategy, kind) is None:
                level, reshard = kind
                step = estimator.step(replace(strategy, shard_level=level, reshard=reshard, shard_group=0))
                step_s, peak = pairs[kind]
                pairs[kind] = (max(step_s, self._step_s(strategy, step.pipeline.total_s)), peak)
        return bound._replace(pairs=pairs)

    def of_split(self, strategy: Strategy, shapes: Sequence[Shape], orders: tuple[Order, ...]) -> Least:
        """A bound of all layouts with these numbers of ranks, whatever the micro-batch: of infinitely small ones.

        Of exchanges it knows only the bandwidth: those of the largest micro-batch, per sequence.
        """
        peaks = self._peaks_of_split(strategy, shapes, orders)
        if min(peaks.values()) > self._capacity:
            return Least({kind: (0.0, peak) for kind, peak in peaks.items()}, "matmul", 0.0)
        number, stages = self._estimator.recipe.batch_size // strategy.data_parallel, strategy.pipeline_parallel
        found = self._rows(strategy, orders, number)
        step_s, cause, cause_s = math.inf, "matmul", 0.0
        least = min((shape.recompute for shape in shapes), key=RECOMPUTES.index)
        tokens, drag = strategy.context_parallel, self._estimator.constants.drag
        for split, context in sorted({(shape.sequence_parallel, shape.context_kind) for shape in shapes}):
            most = replace(strategy, micro_batch_size=number, sequence_parallel=split, context_kind=context)
            exchanged = self._exchanges.of(most, least)
            blocks = [
                (rest / tokens + sum(each.least_s(drag) for each in sent) / number, weight / tokens)
                for (rest, weight), sent in zip(self._ranks.least_of(most, least), exchanged.blocks, strict=True)
            ]
            pipeline_s, bubble_s = least_pipeline_s(self._num_layers, blocks, stages, number, found.time)
            seconds = self._step_s(strategy, pipeline_s)
            if seconds < step_s:
                step_s, (cause, cause_s) = seconds, _cause(exchanged, bubble_s, 0.0, 1 / stages)
        return Least({kind: (step_s, peak) for kind, peak in peaks.items()}, cause, cause_s)

    def _peaks_of_split(
        self, strategy: Strategy, shapes: Sequence[Shape], orders: tuple[Order, ...]
    ) -> dict[ShardKind, float]:
        """Whatever the micro-batches: of one alone."""
        rows = self._rows(strategy, orders, 1).hold
        peaks: dict[ShardKind, float] = {}
        for split, recompute in {(shape.sequence_parallel, shape.recompute) for shape in shapes}:
            held = self._ranks.held(strategy if not split else replace(strategy, sequence_parallel=True), recompute)
            for kind, peak in self._memory.bytes_of(strategy, held, 1, rows).items():
                peaks[kind] = min(peak, peaks.get(kind, math.inf))
        return peaks

    def _step_s(self, strategy: Strategy, pipeline_s: float) -> float:
        """A step with this pipeline and the update of a rank's mean share of parameters, nothing exchanged."""
        sharers = strategy.data_parallel * strategy.context_parallel if self._shares else 1
        updated = self._trainable.at(strategy.tensor_parallel) / (strategy.pipeline_parallel * sharers)
        running = pipeline_s + updated * self._optimizer_s
        return running * self._stretch + self._estimator.constants.step_s

    def _rows(self, strategy: Strategy, orders: tuple[Order, ...], number: int) -> Rows:
        return self._placing.rows(orders, strategy.pipeline_parallel, number)


def _cause(exchanged: Exchanged, bubble_s: float, again_s: float, per_rank: float) -> tuple[str, float]:
    """What most of the time beside arithmetic goes to, and how much."""
    found, most = ("pipeline bubble", bubble_s) if bubble_s > again_s * per_rank else ("recompute", again_s * per_rank)
    for name, seconds in exchanged.causes.items():
        if seconds * per_rank > most:
            found, most = name, seconds * per_rank
    return (found, most) if most > 0 else ("matmul", 0.0)
