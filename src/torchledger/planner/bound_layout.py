"""`Bounds`: seconds and bytes that no layout of a subtree is below, from the floors of its blocks.

Every rank runs its share of all micro-batches; it cannot begin before the first micro-batch has come through the ranks
before it, nor can they end before its last has come back through them. What ranks hold: `bound_memory`.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import mul
from typing import NamedTuple

from torchledger.formula import parts
from torchledger.planner.block import stream_bytes_of
from torchledger.planner.bound import PhaseFloor, PieceFloor, Share, floors
from torchledger.planner.bound_exchange import Exchanged, LeastExchanges, Sent
from torchledger.planner.bound_memory import LeastMemory, RankBytes
from torchledger.planner.bound_rows import FILLED, SPLIT, Placing, Rows, TimeRow
from torchledger.planner.bound_sharing import LeastSharing, with_copies
from torchledger.planner.data_parallel import exposed
from torchledger.planner.estimator import Costed, Estimator, Stages
from torchledger.planner.search_grid import RECOMPUTES, Axes, Order, Shape, ShardKind
from torchledger.planner.search_walk import Least
from torchledger.planner.stack import stack
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute

_PHASES = ("forward", "recompute", "backward", "weight")


class Part(NamedTuple):
    """The floor of a block on one rank, for one micro-batch.

    Attributes:
        kind: `embedding`, `layer`, `prediction`, `head`.
        num_layers: how many such blocks the model has.
        phases: of each, what its computing takes.
    """

    kind: str
    num_layers: int
    phases: tuple[Computing, ...]


class Computing(NamedTuple):
    """The floor of a phase of a block on one rank.

    Attributes:
        device_s: seconds of the device.
        host_s: seconds of the host.
        attention_s, matmul_s: of the device, what exchanges can hide behind.
    """

    device_s: float
    host_s: float
    attention_s: float
    matmul_s: float

    def with_sent(self, sent: Sent, drag: float) -> float:
        """Seconds of the phase with what is sent in it."""
        shown = sent.shown_s
        if sent.attention.seconds:
            shown += sent.attention.shown_s(self.attention_s, drag)
        if sent.matmul.seconds:
            shown += sent.matmul.shown_s(self.matmul_s, drag)
        return max(self.device_s + shown, self.host_s)


class Rank(NamedTuple):
    """Floors of one rank of a tensor and context parallel group, for one micro-batch.

    Attributes:
        parts: by block.
        again_s: what recompute runs again, all layers together.
    """

    parts: tuple[Part, ...]
    again_s: float


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
        self._floors: dict[tuple[Recompute, bool, int], tuple[PieceFloor, ...]] = {}
        self._least: dict[tuple[object, ...], tuple[tuple[float, float], ...]] = {}
        recipe, constants = estimator.recipe, estimator.constants
        self._host = estimator.host_rules(base)
        self._optimizer_s = estimator.update_s(base) + self._host.gradient_s + self._host.weight_s
        doublings = math.log2(max(1, estimator.cluster.num_islands))
        self._stretch = constants.overhead * (1 + constants.straggler * doublings)
        self._is_math = "math" in {recipe.attention, self._stack.attention}
        self._masks = recipe.document_mask or self._is_math  # kept with the embedding, beside other blocks
        self._capacity = math.inf if estimator.capacity_bytes is None else estimator.capacity_bytes
        self._chips = estimator.chips(base)
        self._ranks: dict[tuple[object, ...], Rank] = {}
        self._helds: dict[tuple[object, ...], RankBytes] = {}
        plain = self._floors_of(Strategy(), recipe.recompute)
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
        peaks = self._memory.bytes_of(strategy, self._held(strategy, recompute), size, found.hold)
        if min(peaks.values()) > self._capacity:
            return Least({kind: (0.0, peak) for kind, peak in peaks.items()}, "matmul", 0.0)
        rank, exchanged = self._rank(strategy, recompute), self._exchanges.of(strategy, recompute)
        blocks = []
        drag = self._estimator.constants.drag
        for part, sent in zip(rank.parts, exchanged.blocks, strict=True):
            phases = [each.with_sent(beside, drag) for each, beside in zip(part.phases, sent, strict=True)]
            blocks.append((phases[0], phases[1] + phases[2], phases[3]))
        plain = [(forward + backward, weight) for forward, backward, weight in blocks]
        pipeline_s, bubble_s = _pipeline_s(self._num_layers, plain, stages, number, found.time)
        pairs = {}
        for kind, peak in peaks.items():
            seconds = pipeline_s
            if peak <= self._capacity and (shared := self._sharing.of(strategy, kind)) is not None:
                seconds, _ = _pipeline_s(self._num_layers, self._with(blocks, shared), stages, number, found.time)
            pairs[kind] = (self._step_s(strategy, seconds), peak)
        cause, cause_s = _cause(exchanged, bubble_s, rank.again_s, number / stages)
        return Least(pairs, cause, cause_s)

    def least_bytes(self, strategy: Strategy, recompute: Recompute, orders: tuple[Order, ...], number: int) -> float:
        """What no layout with micro-batches of this size or larger ones, so many or more, is below.

        More of them are more in flight, but for interleaved ones that fill no last group: so all groups are full here.
        """
        full = number - number % strategy.pipeline_parallel or number
        rows = self._rows(strategy, orders, full).hold
        return self._memory.least_bytes(strategy, self._held(strategy, recompute), strategy.micro_batch_size, rows)

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
        plain = self._step_s(strategy, _busy_s(costed, stages, alone, number, strategy))
        pairs = {}
        for kind, (step_s, peak) in bound.pairs.items():
            seconds = plain
            if peak <= self._capacity and (shared := self._sharing.of(strategy, kind)) is not None:
                seconds = self._step_s(strategy, _busy_s(costed, stages, self._with(blocks, shared), number, strategy))
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
                for (rest, weight), sent in zip(self._least_of(most, least), exchanged.blocks, strict=True)
            ]
            pipeline_s, bubble_s = _pipeline_s(self._num_layers, blocks, stages, number, found.time)
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
            held = self._held(strategy if not split else replace(strategy, sequence_parallel=True), recompute)
            for kind, peak in self._memory.bytes_of(strategy, held, 1, rows).items():
                peaks[kind] = min(peak, peaks.get(kind, math.inf))
        return peaks

    def _least_of(self, strategy: Strategy, recompute: Recompute) -> tuple[tuple[float, float], ...]:
        """By block, the least seconds of a sequence: without its weight gradients, and of those."""
        ranks, cut = strategy.tensor_parallel, strategy.context_parallel > 1
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel, ranks, cut)
        found = self._least.get(key)
        if found is None:
            blocks = []
            for floor in self._floors_of(strategy, recompute):
                *rest, weight = [phase.least_s(ranks, is_cut=cut) for phase in floor.phases]
                blocks.append((sum(rest), weight))
            found = self._least[key] = tuple(blocks)
        return found

    def _step_s(self, strategy: Strategy, pipeline_s: float) -> float:
        """A step with this pipeline and the update of a rank's mean share of parameters, nothing exchanged."""
        sharers = strategy.data_parallel * strategy.context_parallel if self._shares else 1
        updated = self._trainable.at(strategy.tensor_parallel) / (strategy.pipeline_parallel * sharers)
        running = pipeline_s + updated * self._optimizer_s
        return running * self._stretch + self._estimator.constants.step_s

    def _rows(self, strategy: Strategy, orders: tuple[Order, ...], number: int) -> Rows:
        return self._placing.rows(orders, strategy.pipeline_parallel, number)

    def _rank(self, strategy: Strategy, recompute: Recompute) -> Rank:
        sequences = strategy.micro_batch_size / strategy.context_parallel
        ranks, cut = strategy.tensor_parallel, strategy.context_parallel > 1
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel, ranks, cut, sequences)
        found = self._ranks.get(key)
        if found is None:
            parts_ = tuple(
                Part(
                    floor.kind,
                    floor.num_layers,
                    tuple(self._computing(phase, sequences, ranks, is_cut=cut) for phase in floor.phases),
                )
                for floor in self._floors_of(strategy, recompute)
            )
            again_s = sum(part.phases[1].device_s * part.num_layers for part in parts_)
            found = self._ranks[key] = Rank(parts_, again_s)
        return found

    def _computing(self, phase: PhaseFloor, sequences: float, ranks: int, *, is_cut: bool) -> Computing:
        chips = self._chips
        attention, matmul = (
            each.busy_s(sequences, ranks, chips, is_cut=is_cut) for each in (phase.attention, phase.matmul)
        )
        device_s = phase.rest_s(sequences, ranks, is_cut=is_cut) + attention + matmul
        starts_s = phase.kernels_s  # some of them are those of the covers
        return Computing(device_s + starts_s, phase.host_s, attention + starts_s, matmul + starts_s)

    def _held(self, strategy: Strategy, recompute: Recompute) -> RankBytes:
        """Activations of one sequence."""
        ranks, tokens = strategy.tensor_parallel, strategy.context_parallel
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel, ranks, tokens)
        found = self._helds.get(key)
        if found is None:
            floors_ = self._floors_of(strategy, recompute)
            # scores in memory: of the tokens that a rank has with themselves
            each, mask = (
                1 / (tokens * tokens if is_of_pairs else tokens) for is_of_pairs in (self._is_math, self._masks)
            )
            head = next(floor for floor in floors_ if floor.kind == "head")
            divided = ranks if strategy.sequence_parallel else 1
            stream = self._estimator.recipe.sequence_length * self._estimator.spec.hidden_size / (tokens * divided)
            found = self._helds[key] = RankBytes(
                tuple(
                    0.0 if floor is head else floor.kept_bytes.at(ranks) * (mask if floor.kind == "embedding" else each)
                    for floor in floors_
                ),
                head.kept_bytes.at(ranks) * each,
                tuple(floor.beside_bytes.at(ranks) * each if floor.kind == "layer" else 0.0 for floor in floors_),
                (head.kept_bytes.at(ranks) + head.beside_bytes.at(ranks)) * each,
                min(floor.less_bytes for floor in floors_),
                stream * stream_bytes_of(self._estimator.recipe, self._stack),
                ranks if strategy.sequence_parallel else 0,
            )
        return found

    def _floors_of(self, strategy: Strategy, recompute: Recompute) -> tuple[PieceFloor, ...]:
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel)
        found = self._floors.get(key)
        if found is None:
            found = self._floors[key] = floors(
                self._estimator.at(recompute),
                self._base,
                sequence_parallel=strategy.sequence_parallel,
                expert_tensor_parallel=strategy.expert_tensor_parallel,
            )
        return found


def _pipeline_s(
    num_layers: Sequence[int],
    blocks: Sequence[tuple[float, float]],
    stages: int,
    number: int,
    rows: Sequence[TimeRow],
) -> tuple[float, float]:
    """Seconds of the micro-batches at the least, and how much of them is bubble.

    Blocks are (seconds without weight gradients, seconds of those); `num_layers` how many of each the model has.
    """
    split = [seconds for seconds, _ in blocks]
    whole = [seconds + weight for seconds, weight in blocks]
    mean = number * sum(map(mul, whole, num_layers)) / stages
    if stages == 1:
        return mean, 0.0
    least = math.inf
    for is_whole, ranks in rows:
        waited = whole if is_whole else split
        longest = mean
        for held, before in ranks:
            busy = number * sum(map(mul, whole, held))
            own = busy if is_whole else number * sum(map(mul, split, held))
            longest = max(longest, busy, own + sum(map(mul, waited, before)))
        least = min(least, longest)
    return least, least - mean


def _busy_s(
    costed: Costed, stages: Stages, blocks: Sequence[tuple[float, float]], number: int, strategy: Strategy
) -> float:
    """Seconds of the rank that is busy longest, with what it waits for.

    Blocks are (seconds without weight gradients, seconds of those).
    """
    seconds = {id(piece.block): each for piece, each in zip(costed.pieces, blocks, strict=True)}
    chunks = {}
    for stage in stages:
        if id(stage) not in chunks:
            first = sum(seconds[id(block)][0] * n for block, _, n in stage[0])
            first_weight = sum(seconds[id(block)][1] * n for block, _, n in stage[0])
            own = sum(seconds[id(block)][0] * n for chunk in stage for block, _, n in chunk)
            weight = sum(seconds[id(block)][1] * n for chunk in stage for block, _, n in chunk)
            chunks[id(stage)] = (first, first_weight, own, weight)
    is_filled, is_split = strategy.schedule in FILLED, strategy.schedule in SPLIT
    longest = before = 0.0
    for stage in stages:
        first, first_weight, own, weight = chunks[id(stage)]
        waits = number * (own if is_split else own + weight) + before
        longest = max(longest, waits, number * (own + weight))
        if is_filled:
            before += first if is_split else first + first_weight
    # DualPipe's ranks have each micro-batch in one of their two chunks only
    return longest / 2 if strategy.schedule == "dualpipe" and len(stages) > 1 else longest


def _cause(exchanged: Exchanged, bubble_s: float, again_s: float, per_rank: float) -> tuple[str, float]:
    """What most of the time beside arithmetic goes to, and how much."""
    found, most = ("pipeline bubble", bubble_s) if bubble_s > again_s * per_rank else ("recompute", again_s * per_rank)
    for name, seconds in exchanged.causes.items():
        if seconds * per_rank > most:
            found, most = name, seconds * per_rank
    return (found, most) if most > 0 else ("matmul", 0.0)
