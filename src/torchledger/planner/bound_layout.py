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
from typing import NamedTuple

from torchledger.formula import parts
from torchledger.planner.assembly import layers_of_chunks
from torchledger.planner.block import exchanges_of, meant_precision, stream_format
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
from torchledger.spec.strategy import ContextKind

_PHASES = ("forward", "recompute", "backward", "weight")
_CAUSES = {
    "tensor": "tensor parallel communication",
    "vocabulary": "tensor parallel communication",
    "context": "context parallel communication",
    "expert": "expert parallel communication",
}
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
        self._stream = 4 if stream_format(estimator.recipe, self._stack) == "fp32" else 2
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
        self._known_rows: dict[tuple[int, tuple[Order, ...]], tuple[_Row, ...]] = {}
        beside = overhead(self._stack)
        self._outside = beside.context + beside.workspace - _ROUNDING

    def of_shape(self, strategy: Strategy, recompute: Recompute, orders: Sequence[Order]) -> Least:
        """A bound of all layouts that differ in schedule (one of `orders`) and sharding only."""
        size = strategy.micro_batch_size
        found = self._floors_of(recompute, strategy.sequence_parallel)
        exchanged = self._exchanges(strategy, recompute)
        number = self._estimator.recipe.batch_size // (strategy.data_parallel * size)
        cut = strategy.context_parallel > 1
        each = size / strategy.context_parallel
        ranks = strategy.tensor_parallel
        blocks = []
        for floor, sent in zip(found, exchanged.seconds, strict=True):
            seconds = 0.0
            for (device, kernels_s, host_s), sent_s in zip(floor.phases, sent, strict=True):
                share = device[cut]
                busy = each * (share.whole + share.divided / ranks) + kernels_s + sent_s
                seconds += max(busy, host_s)
            blocks.append(seconds)
        rows = self._rows(strategy.pipeline_parallel, orders)
        pipeline_s, bubble_s = _pipeline_s(found, blocks, strategy.pipeline_parallel, number, rows)
        step_s = self._step_s(pipeline_s, strategy, found)
        peak = self._peak(strategy, found, number, rows)
        per_rank = number / strategy.pipeline_parallel
        causes = {name: seconds * per_rank for name, seconds in exchanged.causes.items()}
        causes["pipeline bubble"] = bubble_s
        again = sum(f.phases[1].device_s[cut].at(ranks) * f.num_layers for f in found) * each
        causes["recompute"] = again * per_rank
        cause, cause_s = max(causes.items(), key=lambda each: each[1])
        return Least(step_s, peak, cause if cause_s > 0 else "matmul", cause_s)

    def of_order(self, strategy: Strategy, recompute: Recompute) -> Least:
        """A bound of all layouts that differ in sharding only: the pipeline as it is, without what sharding adds."""
        estimator = self._estimator.at(recompute)
        step = estimator.step(replace(strategy, shard_level=0, shard_group=0))
        bound = self.of_shape(strategy, recompute, (Order(strategy.schedule, strategy.virtual_stages),))
        seconds = step.pipeline.total_s * self._stretch + self._estimator.constants.step_s
        return bound._replace(step_s=max(bound.step_s, seconds))

    def of_split(self, strategy: Strategy, shapes: Sequence[Shape], orders: Sequence[Order]) -> Least:
        """A bound of all layouts with these numbers of ranks, whatever the micro-batch: of infinitely small ones.

        Of exchanges it knows only the bandwidth: those of the largest micro-batch, per sequence.
        """
        recipe = self._estimator.recipe
        number = recipe.batch_size // strategy.data_parallel
        cut, each = strategy.context_parallel > 1, 1 / strategy.context_parallel
        rows = self._rows(strategy.pipeline_parallel, orders)
        step_s, cause, cause_s = math.inf, "matmul", 0.0
        kinds = {(shape.sequence_parallel, shape.context_kind) for shape in shapes}
        least = min((shape.recompute for shape in shapes), key=RECOMPUTES.index)
        for sequence_parallel, kind in sorted(kinds):
            most = _with(strategy, number, sequence_parallel, kind)
            found, exchanged = self._floors_of(least, sequence_parallel), self._exchanges(most, least)
            blocks = [
                each * sum(phase.device_s[cut].at(strategy.tensor_parallel) for phase in floor.phases)
                + sum(sent) / number
                for floor, sent in zip(found, exchanged.seconds, strict=True)
            ]
            pipeline_s, bubble_s = _pipeline_s(found, blocks, strategy.pipeline_parallel, number, rows)
            seconds = self._step_s(pipeline_s, strategy, found)
            if seconds < step_s:
                causes = {name: sent / strategy.pipeline_parallel for name, sent in exchanged.causes.items()}
                causes["pipeline bubble"] = bubble_s
                step_s, (cause, cause_s) = seconds, max(causes.items(), key=lambda each: each[1])
        peak = min(
            self._peak(_with(strategy, 1, split, "ring"), self._floors_of(recompute, split), number, rows)
            for split, recompute in {(shape.sequence_parallel, shape.recompute) for shape in shapes}
        )
        return Least(step_s, peak, cause if cause_s > 0 else "matmul", cause_s)

    def _step_s(self, pipeline_s: float, strategy: Strategy, found: Sequence[PieceFloor]) -> float:
        sharers = strategy.data_parallel * strategy.context_parallel if any(self._levels) else 1
        dense = sum(each.trainable.at(strategy.tensor_parallel) * each.num_layers for each in found)
        updated = dense / (sharers * strategy.pipeline_parallel)
        return (pipeline_s + updated * self._optimizer_s) * self._stretch + self._estimator.constants.step_s

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
            for each in exchanges_of(part, estimator.spec, estimator.recipe, strategy, self._stack, self._stream):
                group = group_of(each.cause, strategy)
                seconds = estimator.fabric.seconds(each.op, each.num_bytes, *group) * each.times
                if each.is_hidden:
                    seconds = drag * seconds + (seconds / each.num_chunks if each.num_chunks else 0.0)
                phases[each.phase] += seconds
                causes[_CAUSES[each.cause]] += seconds * part.times
            blocks.append(tuple(phases.values()))
        return Exchanged(tuple(blocks), causes)

    def _rows(self, stages: int, orders: Sequence[Order]) -> tuple[_Row, ...]:
        """How the layers lie under each order."""
        key = (stages, tuple(orders))
        found = self._known_rows.get(key)
        if found is None:
            num_layers, together = self._estimator.spec.num_layers, self._stack.embeddings_as_layers
            rows = dict.fromkeys(
                _row(order, stages, layers_of_chunks(num_layers, stages * order.virtual_stages, together))
                for order in orders
            )
            found = self._known_rows[key] = tuple(rows)
        return found

    def _peak(self, strategy: Strategy, found: Sequence[PieceFloor], number: int, rows: Sequence[_Row]) -> float:
        """The least that the fullest rank holds."""
        stages, ranks = strategy.pipeline_parallel, strategy.tensor_parallel
        each = strategy.micro_batch_size / strategy.context_parallel
        if self._is_math:  # the scores of the tokens that a rank has with themselves
            each /= strategy.context_parallel
        layers = [floor for floor in found if floor.kind == "layer"]
        head = next(floor for floor in found if floor.kind == "head")
        embedding = next(floor for floor in found if floor.kind == "embedding")
        kept = min(floor.kept_bytes.at(ranks) for floor in layers) * each
        beside = min(floor.beside_bytes.at(ranks) for floor in layers) * each
        spike = (head.kept_bytes.at(ranks) + head.beside_bytes.at(ranks)) * each
        resident = 1 - self._estimator.recipe.offload_activations
        mean = self._state(strategy, [(floor, floor.num_layers / stages) for floor in found])
        least = math.inf
        flying = min(stages, number)
        for row in rows:
            first = last = mean
            if stages > 1:
                first = self._state(
                    strategy, [(embedding, 1), *((floor, row.first) for floor in self._plainest(layers, ranks))]
                )
                last = self._state(
                    strategy, [(head, 1), *((floor, row.last) for floor in self._plainest(layers, ranks))]
                )
            first += kept * row.first * flying * resident + beside
            last += kept * row.last * resident + spike
            least = min(least, max(first, last))
        return max(mean, least) + self._outside

    @staticmethod
    def _plainest(layers: Sequence[PieceFloor], ranks: int) -> Sequence[PieceFloor]:
        """The kind of layer with the fewest parameters, if it has fewest of both kinds."""
        least = min(layers, key=lambda each: (each.parameters.at(ranks), each.expert_parameters))
        has_least = all(least.expert_parameters <= each.expert_parameters for each in layers)
        return (least,) if has_least else ()

    def _state(self, strategy: Strategy, held: Sequence[tuple[PieceFloor, float]]) -> float:
        """Bytes of the training state of these blocks under the shard level that leaves least."""
        ranks = strategy.tensor_parallel
        own = 1 / (strategy.expert_parallel * (strategy.expert_tensor_parallel or ranks))
        dense = sum(each.parameters.at(ranks) * count for each, count in held)
        trained = sum(each.trainable.at(ranks) * count for each, count in held)
        expert = sum(each.expert_parameters * own * count for each, count in held)
        trained_expert = sum(each.expert_trainable * own * count for each, count in held)
        sharers = strategy.data_parallel * strategy.context_parallel
        expert_sharers = max(1, sharers // strategy.expert_parallel)
        least = math.inf
        for level, rule in self._rules.items():
            over = sharers if level else 1, expert_sharers if level else 1
            gradient = over if level >= 2 else (1, 1)
            weight = over if level == 3 else (1, 1)
            kept = (
                0.0 if self._estimator.recipe.offload_optimizer else rule.master + min(rule.moments, rule.end_moments)
            )
            least = min(
                least,
                rule.weight * (dense / weight[0] + expert / weight[1])
                + rule.gradient * (trained / gradient[0] + trained_expert / gradient[1])
                + rule.fresh * (trained + trained_expert)
                + kept * (trained / over[0] + trained_expert / over[1]),
            )
        return least


class _Row(NamedTuple):
    """How layers lie over ranks.

    Attributes:
        schedule, virtual_stages: the order.
        first, last: layers of the first and the last rank, all chunks.
        before: layers of the first chunks of all ranks but the last.
    """

    schedule: str
    virtual_stages: int
    first: int
    last: int
    before: int


def _row(order: Order, stages: int, counts: Sequence[int]) -> _Row:
    """The row of an order.

    >>> _row(Order("interleaved", 2), 2, (3, 4, 4, 3))  # rank 0 has chunks of 3 and 4 layers, rank 1 of 4 and 3
    _Row(schedule='interleaved', virtual_stages=2, first=7, last=7, before=3)
    """
    return _Row(
        order.schedule,
        order.virtual_stages,
        sum(counts[::stages]),
        sum(counts[stages - 1 :: stages]),
        sum(counts[: stages - 1]),
    )


def _pipeline_s(
    found: Sequence[PieceFloor], blocks: Sequence[float], stages: int, number: int, rows: Sequence[_Row]
) -> tuple[float, float]:
    """Seconds of the micro-batches at the least, and how much of them is bubble."""
    total = sum(seconds * floor.num_layers for floor, seconds in zip(found, blocks, strict=True))
    if stages == 1:
        return number * total, 0.0
    layer = min(seconds for floor, seconds in zip(found, blocks, strict=True) if floor.kind == "layer")
    end = sum(
        seconds * floor.num_layers
        for floor, seconds in zip(found, blocks, strict=True)
        if floor.kind in {"head", "prediction"}
    )
    mean = number * total / stages
    least = math.inf
    for row in rows:
        seconds = mean
        if row.schedule in {"1f1b", "gpipe", "interleaved"}:
            seconds = max(mean, number * (row.last * layer + end) + row.before * layer)
        least = min(least, seconds)
    return least, least - mean


def _with(strategy: Strategy, size: int, sequence_parallel: bool, kind: ContextKind) -> Strategy:
    return replace(strategy, micro_batch_size=size, sequence_parallel=sequence_parallel, context_kind=kind)
