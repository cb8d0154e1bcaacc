"""`Bounds`: seconds and bytes that no layout of a subtree is below, from the floors of its blocks.

Time: every rank runs its share of all micro-batches, and the last rank (which has the head) cannot begin before the
first micro-batch has come through the others, nor the others end before the last has come back. Memory: the first rank
holds the activations of as many micro-batches as there are stages, the last one the logits, and every rank its share of
the training state under the shard level that leaves least.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from torchledger.formula import parts
from torchledger.planner.assembly import layers_of_chunks
from torchledger.planner.block import exchanges_of, meant_precision
from torchledger.planner.bound import PieceFloor, floors
from torchledger.planner.estimator import Estimator
from torchledger.planner.exchange import group_of
from torchledger.planner.memory_state import overhead, state_rule
from torchledger.planner.search_grid import RECOMPUTES, Axes, Order, Shape
from torchledger.planner.search_walk import Least
from torchledger.planner.stack import stack
from torchledger.planner.update import update_bytes
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute

_PHASES = ("forward", "recompute", "backward", "weight")
_CAUSES = {
    "tensor": "tensor parallel communication",
    "vocabulary": "tensor parallel communication",
    "context": "context parallel communication",
    "expert": "expert parallel communication",
}
#: Schedules in which the last rank waits for the first micro-batch, and the others for its last, with all they have.
_FILLED = frozenset({"gpipe", "1f1b", "interleaved"})
#: Parts of a rank's memory are whole bytes each, so their sum may be this much below the sum of the exact ones.
_ROUNDING = 16


class Exchanged(NamedTuple):
    """Seconds that the exchanges of a micro-batch show at the least.

    Attributes:
        seconds: [block][phase].
        causes: seconds of one micro-batch through all layers, by cause.
    """

    seconds: tuple[tuple[float, ...], ...]
    causes: dict[str, float]


class Part(NamedTuple):
    """The floor of a block on one rank.

    Attributes:
        kind: `embedding`, `layer`, `prediction`, `head`.
        num_layers: how many such blocks the model has.
        phases: (device seconds of a sequence, starts of kernels, host seconds).
    """

    kind: str
    num_layers: int
    phases: tuple[tuple[float, float, float], ...]


class Rank(NamedTuple):
    """Floors of one rank of a tensor and context parallel group, for one sequence.

    Attributes:
        parts: by block.
        again_s: what recompute runs again, all layers together.
        kept_bytes, beside_bytes: of the layer that has least.
        spike_bytes: what the head holds at the loss.
    """

    parts: tuple[Part, ...]
    again_s: float
    kept_bytes: float
    beside_bytes: float
    spike_bytes: float


class Row(NamedTuple):
    """How layers lie over ranks under an order.

    Attributes:
        is_filled: whether a rank waits for the first micro-batch through those before it, and they for its last.
        first, last: layers of the first and the last rank, all chunks.
        before: layers of the first chunks of all ranks but the last.
        others: of the other ranks that may be slowest: layers, and layers of the first chunks of those before.
    """

    is_filled: bool
    first: int
    last: int
    before: int
    others: tuple[tuple[int, int], ...]


class States(NamedTuple):
    """Bytes of the training state of a split's ranks, at the least.

    Attributes:
        mean: of a rank that holds the mean.
        ends: of the first and the last rank, by row.
        optimizer_s: seconds of the update of the mean.
    """

    mean: float
    ends: tuple[tuple[float, float], ...]
    optimizer_s: float


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
        self._levels = tuple(level for level in axes.shard_levels if level in self._stack.shard_levels) or (0,)
        self._parts = parts(estimator.spec, estimator.recipe)
        self._floors: dict[tuple[Recompute, bool], tuple[PieceFloor, ...]] = {}
        self._exchanged: dict[tuple[object, ...], Exchanged] = {}
        recipe, constants = estimator.recipe, estimator.constants
        moved = update_bytes(recipe.optimizer, meant_precision(recipe, self._stack))
        self._optimizer_s = moved / estimator.chips(base).bytes_per_s
        doublings = math.log2(max(1, estimator.cluster.num_islands))
        self._stretch = constants.overhead * (1 + constants.straggler * doublings)
        optimizer = recipe.optimizer
        self._rules = {
            level: state_rule(self._stack, recipe.precision, optimizer.kind, optimizer.momentum > 0, level)
            for level in self._levels
        }
        self._is_math = "math" in {recipe.attention, self._stack.attention}
        self._capacity = math.inf if estimator.capacity_bytes is None else estimator.capacity_bytes
        self._resident, self._offloads = 1 - recipe.offload_activations, recipe.offload_optimizer
        self._ranks: dict[tuple[object, ...], Rank] = {}
        self._known_rows: dict[tuple[int, tuple[Order, ...]], tuple[Row, ...]] = {}
        self._known_states: dict[tuple[object, ...], States] = {}
        beside = overhead(self._stack)
        self._outside = beside.context + beside.workspace - _ROUNDING

    def of_shape(self, strategy: Strategy, recompute: Recompute, orders: Sequence[Order]) -> Least:
        """A bound of all layouts that differ in order (one of `orders`) and sharding only.

        Where bytes alone rule them out, the bound of seconds is 0: exchanges need not be priced.
        """
        size, stages = strategy.micro_batch_size, strategy.pipeline_parallel
        rank = self._rank(strategy, recompute)
        number = self._estimator.recipe.batch_size // (strategy.data_parallel * size)
        rows, states = self._rows(stages, orders), self._states(strategy, orders)
        peak = self._peak(rank, states, rows, size, min(stages, number))
        if peak > self._capacity:
            return Least(0.0, peak, "matmul", 0.0)
        exchanged = self._exchanges(strategy, recompute)
        blocks = []
        for part, sent in zip(rank.parts, exchanged.seconds, strict=True):
            seconds = 0.0
            for (device_s, kernels_s, host_s), sent_s in zip(part.phases, sent, strict=True):
                seconds += max(size * device_s + kernels_s + sent_s, host_s)
            blocks.append(seconds)
        pipeline_s, bubble_s = _pipeline_s(rank.parts, blocks, stages, number, rows)
        step_s = (pipeline_s + states.optimizer_s) * self._stretch + self._estimator.constants.step_s
        cause, cause_s = _cause(exchanged, bubble_s, rank.again_s * size, number / stages)
        return Least(step_s, peak, cause, cause_s)

    def of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only, with the seconds of blocks as they are."""
        estimator = self._estimator.at(recompute)
        stages = estimator.stages(strategy)
        number = estimator.recipe.batch_size // (strategy.data_parallel * strategy.micro_batch_size)
        chunks = {id(stage): [sum(cost.total_s * n for _, cost, n in chunk) for chunk in stage] for stage in stages}
        pipeline_s, before_s = 0.0, 0.0
        for stage in stages:
            busy = chunks[id(stage)]
            pipeline_s = max(pipeline_s, number * sum(busy) + before_s)
            before_s += busy[0] if strategy.schedule in _FILLED else 0.0
        if strategy.schedule == "dualpipe" and len(stages) > 1:
            pipeline_s /= 2  # a rank has each micro-batch in one of its two chunks only
        bound = self.of_shape(strategy, recompute, (Order(strategy.schedule, strategy.virtual_stages),))
        seconds = pipeline_s * self._stretch + estimator.constants.step_s
        return bound._replace(step_s=max(bound.step_s, seconds))

    def of_pipeline(self, strategy: Strategy, recompute: Recompute) -> Least:
        """The same with the pipeline as it is, but for what sharding adds to it."""
        estimator = self._estimator.at(recompute)
        step = estimator.step(replace(strategy, shard_level=0, shard_group=0))
        bound = self.of_shape(strategy, recompute, (Order(strategy.schedule, strategy.virtual_stages),))
        seconds = step.pipeline.total_s * self._stretch + estimator.constants.step_s
        return bound._replace(step_s=max(bound.step_s, seconds))

    def of_split(self, strategy: Strategy, shapes: Sequence[Shape], orders: Sequence[Order]) -> Least:
        """A bound of all layouts with these numbers of ranks, whatever the micro-batch: of infinitely small ones.

        Of exchanges it knows only the bandwidth: those of the largest micro-batch, per sequence.
        """
        number, stages = self._estimator.recipe.batch_size // strategy.data_parallel, strategy.pipeline_parallel
        rows, states = self._rows(stages, orders), self._states(strategy, orders)
        step_s, cause, cause_s = math.inf, "matmul", 0.0
        least = min((shape.recompute for shape in shapes), key=RECOMPUTES.index)
        for split, kind in sorted({(shape.sequence_parallel, shape.context_kind) for shape in shapes}):
            most = replace(strategy, micro_batch_size=number, sequence_parallel=split, context_kind=kind)
            rank, exchanged = self._rank(most, least), self._exchanges(most, least)
            blocks = [
                sum(device_s for device_s, _, _ in part.phases) + sum(sent) / number
                for part, sent in zip(rank.parts, exchanged.seconds, strict=True)
            ]
            pipeline_s, bubble_s = _pipeline_s(rank.parts, blocks, stages, number, rows)
            seconds = (pipeline_s + states.optimizer_s) * self._stretch + self._estimator.constants.step_s
            if seconds < step_s:
                step_s, (cause, cause_s) = seconds, _cause(exchanged, bubble_s, 0.0, 1 / stages)
        peak = min(
            self._peak(self._rank(replace(strategy, sequence_parallel=split), recompute), states, rows, 1, 1)
            for split, recompute in {(shape.sequence_parallel, shape.recompute) for shape in shapes}
        )
        return Least(step_s, peak, cause, cause_s)

    def _rank(self, strategy: Strategy, recompute: Recompute) -> Rank:
        key = (recompute, strategy.sequence_parallel, strategy.tensor_parallel, strategy.context_parallel)
        found = self._ranks.get(key)
        if found is None:
            found = self._ranks[key] = self._rank_of(strategy, recompute)
        return found

    def _rank_of(self, strategy: Strategy, recompute: Recompute) -> Rank:
        ranks, tokens = strategy.tensor_parallel, strategy.context_parallel
        floors_ = self._floors_of(recompute, strategy.sequence_parallel)
        parts_ = tuple(
            Part(
                floor.kind,
                floor.num_layers,
                tuple((p.device_s[tokens > 1].at(ranks) / tokens, p.kernels_s, p.host_s) for p in floor.phases),
            )
            for floor in floors_
        )
        # scores in memory: of the tokens that a rank has with themselves
        each = 1 / (tokens * tokens if self._is_math else tokens)
        layers = [floor for floor in floors_ if floor.kind == "layer"]
        head = next(floor for floor in floors_ if floor.kind == "head")
        return Rank(
            parts_,
            sum(part.phases[1][0] * part.num_layers for part in parts_),
            min(floor.kept_bytes.at(ranks) for floor in layers) * each,
            min(floor.beside_bytes.at(ranks) for floor in layers) * each,
            (head.kept_bytes.at(ranks) + head.beside_bytes.at(ranks)) * each,
        )

    def _floors_of(self, recompute: Recompute, sequence_parallel: bool) -> tuple[PieceFloor, ...]:
        key = (recompute, sequence_parallel)
        found = self._floors.get(key)
        if found is None:
            at = self._estimator.at(recompute)
            found = self._floors[key] = floors(at, self._base, sequence_parallel=sequence_parallel)
        return found

    def _exchanges(self, strategy: Strategy, recompute: Recompute) -> Exchanged:
        """What the exchanges of a micro-batch show at the least: those that hide, behind as much as it takes."""
        key = (
            strategy.tensor_parallel,
            strategy.sequence_parallel,
            strategy.context_parallel,
            strategy.context_kind,
            strategy.expert_parallel,
            strategy.expert_tensor_parallel,
            strategy.micro_batch_size,
            recompute,
        )
        found = self._exchanged.get(key)
        if found is None:
            found = self._exchanged[key] = self._priced(strategy, recompute)
        return found

    def _priced(self, strategy: Strategy, recompute: Recompute) -> Exchanged:
        estimator = self._estimator.at(recompute)
        drag = estimator.constants.drag
        blocks, causes = [], dict.fromkeys(_CAUSES.values(), 0.0)
        for part in self._parts:
            phases = dict.fromkeys(_PHASES, 0.0)
            for each in exchanges_of(part, estimator.spec, estimator.recipe, strategy, self._stack):
                group = group_of(each.cause, strategy)
                seconds = estimator.fabric.seconds(each.op, each.num_bytes, *group) * each.times
                if each.is_hidden:
                    seconds = drag * seconds + (seconds / each.num_chunks if each.num_chunks else 0.0)
                phases[each.phase] += seconds
                causes[_CAUSES[each.cause]] += seconds * part.times
            blocks.append(tuple(phases.values()))
        return Exchanged(tuple(blocks), causes)

    def _rows(self, stages: int, orders: Sequence[Order]) -> tuple[Row, ...]:
        """How the layers lie under each order."""
        key = (stages, tuple(orders))
        found = self._known_rows.get(key)
        if found is None:
            num_layers, together = self._estimator.spec.num_layers, self._stack.embeddings_as_layers
            rows = [
                _row(order, stages, layers_of_chunks(num_layers, stages * order.virtual_stages, together))
                for order in orders
            ]
            found = self._known_rows[key] = tuple(dict.fromkeys(rows))
        return found

    def _peak(self, rank: Rank, states: States, rows: Sequence[Row], size: int, flying: int) -> float:
        """The least that the fullest rank holds."""
        kept = rank.kept_bytes * size * self._resident
        beside, spike = rank.beside_bytes * size, rank.spike_bytes * size
        least = min(
            max(first + kept * row.first * flying + beside, last + kept * row.last + spike)
            for row, (first, last) in zip(rows, states.ends, strict=True)
        )
        return max(states.mean, least) + self._outside

    def _states(self, strategy: Strategy, orders: Sequence[Order]) -> States:
        stages, ranks = strategy.pipeline_parallel, strategy.tensor_parallel
        sharers = strategy.data_parallel * strategy.context_parallel
        key = (stages, ranks, sharers, strategy.expert_parallel, strategy.expert_tensor_parallel, tuple(orders))
        found = self._known_states.get(key)
        if found is None:
            floors_ = self._floors_of("none", sequence_parallel=False)
            mean = self._state(strategy, [(floor, floor.num_layers / stages) for floor in floors_])
            ends = [(mean, mean)] * len(self._rows(stages, orders))
            if stages > 1:
                plain = _plainest([floor for floor in floors_ if floor.kind == "layer"], ranks)
                first = [(floor, 1.0) for floor in floors_ if floor.kind == "embedding"]
                last = [(floor, 1.0) for floor in floors_ if floor.kind == "head"]
                ends = [
                    (
                        self._state(strategy, [*first, *((floor, row.first) for floor in plain)]),
                        self._state(strategy, [*last, *((floor, row.last) for floor in plain)]),
                    )
                    for row in self._rows(stages, orders)
                ]
            trained = sum(floor.trainable.at(ranks) * floor.num_layers for floor in floors_)
            updated = trained / (stages * (sharers if any(self._levels) else 1))
            found = self._known_states[key] = States(mean, tuple(ends), updated * self._optimizer_s)
        return found

    def _state(self, strategy: Strategy, held: Sequence[tuple[PieceFloor, float]]) -> float:
        """Bytes of the training state of these blocks under the shard level that leaves least."""
        ranks = strategy.tensor_parallel
        own = 1 / (strategy.expert_parallel * (strategy.expert_tensor_parallel or ranks))
        dense = sum(each.parameters.at(ranks) * count for each, count in held)
        trained = sum(each.trainable.at(ranks) * count for each, count in held)
        expert = sum(each.expert_parameters * own * count for each, count in held)
        trained_expert = sum(each.expert_trainable * own * count for each, count in held)
        sharers = strategy.data_parallel * strategy.context_parallel
        shared = (sharers, max(1, sharers // strategy.expert_parallel))
        least = math.inf
        for level, rule in self._rules.items():
            over = shared if level else (1, 1)
            gradient = shared if level >= 2 else (1, 1)
            weight = shared if level == 3 else (1, 1)
            kept = 0.0 if self._offloads else rule.master + min(rule.moments, rule.end_moments)
            least = min(
                least,
                rule.weight * (dense / weight[0] + expert / weight[1])
                + rule.gradient * (trained / gradient[0] + trained_expert / gradient[1])
                + rule.fresh * (trained + trained_expert)
                + kept * (trained / over[0] + trained_expert / over[1]),
            )
        return least


def _plainest(layers: Sequence[PieceFloor], ranks: int) -> Sequence[PieceFloor]:
    """The kind of layer with the fewest parameters, if it has fewest of both kinds."""
    least = min(layers, key=lambda each: (each.parameters.at(ranks), each.expert_parameters))
    return (least,) if all(least.expert_parameters <= each.expert_parameters for each in layers) else ()


def _row(order: Order, stages: int, counts: Sequence[int]) -> Row:
    """The row of an order.

    >>> _row(Order("interleaved", 2), 2, (3, 4, 4, 3))  # rank 0 has chunks of 3 and 4 layers, rank 1 of 4 and 3
    Row(is_filled=True, first=7, last=7, before=3, others=((7, 0),))
    """
    layers = [sum(counts[rank::stages]) for rank in range(stages)]
    before = [0, *accumulate(counts[: stages - 1])]
    latest = {layers[rank]: before[rank] for rank in range(stages - 1)}
    others = tuple((own, first) for own, first in latest.items() if own == max(latest))
    return Row(order.schedule in _FILLED, layers[0], layers[-1], before[-1], others)


def _pipeline_s(
    parts_: Sequence[Part], blocks: Sequence[float], stages: int, number: int, rows: Sequence[Row]
) -> tuple[float, float]:
    """Seconds of the micro-batches at the least, and how much of them is bubble."""
    total = end = 0.0
    layer = math.inf
    for part, seconds in zip(parts_, blocks, strict=True):
        total += seconds * part.num_layers
        if part.kind == "layer":
            layer = min(layer, seconds)
        elif part.kind != "embedding":
            end += seconds * part.num_layers
    mean = number * total / stages
    if stages == 1:
        return mean, 0.0
    least = math.inf
    for row in rows:
        seconds = mean
        if row.is_filled:
            seconds = max(seconds, number * (row.last * layer + end) + row.before * layer)
            for own, first in row.others:
                seconds = max(seconds, (number * own + first) * layer)
        least = min(least, seconds)
    return least, least - mean


def _cause(exchanged: Exchanged, bubble_s: float, again_s: float, per_rank: float) -> tuple[str, float]:
    """What most of the time beside arithmetic goes to, and how much."""
    found, most = ("pipeline bubble", bubble_s) if bubble_s > again_s * per_rank else ("recompute", again_s * per_rank)
    for name, seconds in exchanged.causes.items():
        if seconds * per_rank > most:
            found, most = name, seconds * per_rank
    return (found, most) if most > 0 else ("matmul", 0.0)
