"""`Plan`: what a training run on a cluster costs, by stage and by cause, and every assumption made on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torchledger.ledger import Ledger
from torchledger.machine import Cluster
from torchledger.planner.stage import Stage
from torchledger.spec import ModelSpec, Recipe, Strategy

#: Causes of a step's seconds, in the order in which a screen lists them. Those of the slowest stage add up to the step.
CAUSES: tuple[str, ...] = (
    "matmul",
    "attention",
    "memory-bound operations",
    "launch overhead",
    "recompute",
    "tensor parallel communication",
    "context parallel communication",
    "expert parallel communication",
    "pipeline communication",
    "pipeline bubble",
    "data parallel communication",
    "weight gathering",
    "optimizer",
    "host transfers",
    "data and host",
    "stragglers",
)

#: Parts of a rank's memory, in the order in which a screen lists them. They add up to the peak.
PARTS: tuple[str, ...] = (
    "parameters",
    "gradients",
    "master weights",
    "optimizer state",
    "gathered weights",
    "activations",
    "recomputed activations",
    "temporaries",
    "logits and loss",
    "communication buffers",
    "workspace",
    "fragmentation",
    "context",
)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the search knows of a layout.

    Attributes:
        step_s: seconds of a step.
        peak_bytes: bytes of the fullest rank, all parts.
    """

    step_s: float
    peak_bytes: int


@dataclass(frozen=True, slots=True)
class StageMemory:
    """Memory of one pipeline rank at its worst moment, of which there are three measures.

    Attributes:
        parts: bytes by part (`PARTS`).
        host_bytes: what was moved to host memory, beside the parts.
        communicator_bytes: of the part `communication buffers`, what NCCL takes for itself, outside the allocator.
    """

    parts: Mapping[str, int]
    host_bytes: int = 0
    communicator_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        """All parts together: what `nvidia-smi` shows for the process."""
        return sum(self.parts.values())

    @property
    def reserved_bytes(self) -> int:
        """What PyTorch's allocator has taken from the device (`torch.cuda.max_memory_reserved`)."""
        return self.peak_bytes - self.parts.get("context", 0) - self.communicator_bytes

    @property
    def allocated_bytes(self) -> int:
        """What tensors hold (`torch.cuda.max_memory_allocated`)."""
        return self.reserved_bytes - self.parts.get("fragmentation", 0)


@dataclass(frozen=True, slots=True)
class Slot:
    """One piece of a rank's time line within a step, seconds from its start.

    Attributes:
        what: `forward`, `backward`, `weight gradient`, `send`, `gather`, `reduce`, `to host`, `optimizer`, `from host`.
        micro_batch: its number; -1 for none.
        chunk: virtual stage.
    """

    start_s: float
    end_s: float
    what: str
    micro_batch: int = -1
    chunk: int = 0


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One pipeline stage.

    Attributes:
        stage: its share of the model.
        ledger: what one of its ranks runs in a step, collectives included.
        memory: its memory by part.
        seconds: seconds by cause (`CAUSES`); they add up to the step.
        time_line: its slots in order.
    """

    stage: Stage
    ledger: Ledger
    memory: StageMemory
    seconds: Mapping[str, float]
    time_line: tuple[Slot, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run costs. Amounts in SI base units but for `days` and `chip_hours`.

    Attributes:
        spec, recipe, strategy, cluster: the question.
        stages: one entry for every pipeline rank.
        step_s: seconds of a step.
        interval_s: where a measured step lies with 90 % probability; nothing if no rows say so.
        expected_s: `step_s` with what measured rows of like questions left over; nothing where no rows were fitted.
        model_flops: FLOPs of a step of the whole model by the default convention of MFU.
        hardware_flops: those that run, recompute included.
        mfu, hfu: over the dense peak of the format that the matmuls run in.
        tokens_per_s: of the whole cluster.
        capacity_bytes: what a rank may use.
        days, chip_hours, money, energy_j, carbon_kg: of the whole run; nothing where tokens, price or facts are
            unknown.
        losses: share of the wall clock lost to causes outside of steps (restarts, evaluation, checkpoints), by cause.
        assumptions: every one.
    """

    spec: ModelSpec
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster
    stages: tuple[StagePlan, ...]
    step_s: float
    interval_s: tuple[float, float] | None
    model_flops: float
    hardware_flops: float
    mfu: float
    hfu: float
    tokens_per_s: float
    capacity_bytes: int | None
    days: float | None
    chip_hours: float | None
    money: float | None
    energy_j: float | None
    carbon_kg: float | None
    losses: Mapping[str, float]
    assumptions: tuple[str, ...]
    expected_s: float | None = None

    @property
    def slowest(self) -> StagePlan:
        """The stage that waits least."""
        return min(self.stages, key=lambda each: each.seconds.get("pipeline bubble", 0.0))

    @property
    def fullest(self) -> StagePlan:
        """The stage whose ranks hold most."""
        return max(self.stages, key=lambda each: each.memory.peak_bytes)

    @property
    def peak_bytes(self) -> int:
        """Bytes of the fullest rank."""
        return self.fullest.memory.peak_bytes

    @property
    def fits(self) -> bool | None:
        """Whether the fullest rank has room; nothing where the chip's memory is unknown."""
        return None if self.capacity_bytes is None else self.peak_bytes <= self.capacity_bytes
