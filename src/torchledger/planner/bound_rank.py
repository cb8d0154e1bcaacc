"""`RankFloors`: seconds and bytes that no rank of a tensor and context parallel group is below, for one micro-batch."""

from __future__ import annotations

from typing import NamedTuple

from torchledger.planner.block import stream_bytes_of
from torchledger.planner.bound import PhaseFloor, PieceFloor, floors
from torchledger.planner.bound_exchange import Sent
from torchledger.planner.bound_memory import RankBytes
from torchledger.planner.estimator import Estimator
from torchledger.planner.stack import stack
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute


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
        device_s = self.device_s + shown
        return device_s if device_s > self.host_s else self.host_s  # noqa: FURB136 (`max` takes twice as long)


class Rank(NamedTuple):
    """Floors of one rank of a tensor and context parallel group, for one micro-batch.

    Attributes:
        parts: by block.
        again_s: what recompute runs again, all layers together.
    """

    parts: tuple[Part, ...]
    again_s: float


class RankFloors:
    """Floors of the ranks of one question's layouts, remembered.

    Args:
        estimator: of the question.
        base: the stack and what else no axis decides.
    """

    __slots__ = (
        "_base",
        "_chips",
        "_estimator",
        "_floors",
        "_helds",
        "_is_math",
        "_least",
        "_masks",
        "_ranks",
        "_stack",
    )

    def __init__(self, estimator: Estimator, base: Strategy) -> None:
        self._estimator = estimator
        self._base = base
        self._stack = stack(base.stack)
        self._chips = estimator.chips(base)
        self._is_math = "math" in {estimator.recipe.attention, self._stack.attention}
        self._masks = estimator.recipe.document_mask or self._is_math  # kept with the embedding, beside other blocks
        self._floors: dict[tuple[Recompute, bool, int], tuple[PieceFloor, ...]] = {}
        self._least: dict[tuple[object, ...], tuple[tuple[float, float], ...]] = {}
        self._ranks: dict[tuple[object, ...], Rank] = {}
        self._helds: dict[tuple[object, ...], RankBytes] = {}

    def least_of(self, strategy: Strategy, recompute: Recompute) -> tuple[tuple[float, float], ...]:
        """By block, the least seconds of a sequence: without its weight gradients, and of those."""
        ranks, cut = strategy.tensor_parallel, strategy.context_parallel > 1
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel, ranks, cut)
        found = self._least.get(key)
        if found is None:
            blocks = []
            for floor in self.floors_of(strategy, recompute):
                *rest, weight = [phase.least_s(ranks, is_cut=cut) for phase in floor.phases]
                blocks.append((sum(rest), weight))
            found = self._least[key] = tuple(blocks)
        return found

    def of(self, strategy: Strategy, recompute: Recompute) -> Rank:
        """Seconds of the blocks of a micro-batch."""
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
                for floor in self.floors_of(strategy, recompute)
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

    def held(self, strategy: Strategy, recompute: Recompute) -> RankBytes:
        """Activations of one sequence."""
        ranks, tokens = strategy.tensor_parallel, strategy.context_parallel
        key = (recompute, strategy.sequence_parallel, strategy.expert_tensor_parallel, ranks, tokens)
        found = self._helds.get(key)
        if found is None:
            floors_ = self.floors_of(strategy, recompute)
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

    def floors_of(self, strategy: Strategy, recompute: Recompute) -> tuple[PieceFloor, ...]:
        """Floors of the blocks, as functions of ranks and sequences."""
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
