"""`Trace`: what looking at a step gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Amount, Convention, Coverage, Ledger, unknown_operations
from torchledger.machine import Chip
from torchledger.machine import get as get_chip
from torchledger.memory import AllocatorSettings, Peak, Reserved, Timeline, reserve
from torchledger.ops.roofline import intensity, roof
from torchledger.tracer.call import Call
from torchledger.tracer.pricing.touched import FREE
from torchledger.tracer.targets.cuda.scratch import scratch_by_call

#: What is really needed of attention: pairs that a mask, a window or a document lets through.
_EXACT = Convention(attention="exact")


@dataclass(frozen=True, slots=True)
class Trace:
    """What looking at a training step gave.

    Attributes:
        ledger: lines of the step (of the last one, where several were run).
        timeline: allocations and frees from the model's creation to the end; `marks["step 2"]` is the number of events
            before the second step.
        calls: every operation call in order; their signatures can be replayed on real tensors.
        first_call: index of the first call that is in the ledger.
        num_parameters: parameters, tied ones once.
        assumptions: what was assumed on the way.
        target: the device that the step was looked at for.
        rank, world_size: which rank of how many the step is one of.
    """

    ledger: Ledger
    timeline: Timeline
    calls: tuple[Call, ...]
    first_call: int
    num_parameters: int
    assumptions: tuple[str, ...] = ()
    target: str = "cpu"
    rank: int = 0
    world_size: int = 1

    # ------------------------------------------------------------------------------------------------ three numbers

    @property
    def model_flops(self) -> Amount:
        """FLOPs of the model: contractions, attention as the full square, no recompute. The numerator of MFU."""
        return self.ledger.under(MODEL_FLOPS).flops

    @property
    def executed_flops(self) -> Amount:
        """FLOPs that run: recompute as far as it goes, a flash backward's fifth product. The numerator of HFU."""
        return self.ledger.under(HARDWARE_FLOPS).flops

    @property
    def exact_flops(self) -> Amount:
        """FLOPs of the model, attention pair by pair (causal, window, documents); `None` where a mask is data."""
        return self.ledger.under(_EXACT).flops

    def split(self, convention: Convention = HARDWARE_FLOPS) -> dict[str, Amount]:
        """FLOPs by what they are for (`Ledger.by_purpose`): forward, input gradient, weight gradient, recompute ..."""
        return {purpose: part.under(convention).flops for purpose, part in self.ledger.by_purpose().items()}

    def by_number_format(self) -> dict[str, dict[str, Amount]]:
        """The three numbers for each number format that contractions run in."""
        return {
            name: {
                "model_flops": part.under(MODEL_FLOPS).flops,
                "executed_flops": part.under(HARDWARE_FLOPS).flops,
                "exact_flops": part.under(_EXACT).flops,
            }
            for name, part in self.ledger.by("number_format").items()
            if part.under(HARDWARE_FLOPS).flops != 0
        }

    @property
    def all_ranks(self) -> Ledger:
        """The ledger of all ranks together, if each does what this one does: every line `world_size` times.

        Where ranks differ (pipeline stages, shards of unequal size, experts) trace each kind with `rank=` and add
        their ledgers.
        """
        assumption = f"all {self.world_size} ranks do what rank {self.rank} does"
        whole = self.ledger * self.world_size
        return whole if self.world_size == 1 else replace(whole, assumptions=(*whole.assumptions, assumption))

    @property
    def coverage(self) -> Coverage:
        """Which share of the operations was counted by a rule, and what is unknown."""
        calls = [call for call in self.calls[self.first_call :] if call.phase != "build"]
        num_free = sum(call.signature.op.split(".")[1] in FREE for call in calls)
        unknown = unknown_operations(self.ledger)
        num_unknown = sum(each.times for each in unknown)
        return Coverage(len(calls) - num_free - num_unknown, num_free, unknown)

    # ----------------------------------------------------------------------------------------------------- roofline

    @property
    def intensity(self) -> float | None:
        """Arithmetic intensity of the whole step: FLOPs executed, of every kind, over bytes moved."""
        return intensity(self.ledger.total)

    def bound_on(self, chip: Chip | str) -> Mapping[str, float]:
        """Seconds of the step's lines by what bounds them on a chip (`compute`, `memory`), by its data sheet.

        Nothing overlaps. Lines whose time is not known are left out: it is a lower bound.

        Raises:
            UnknownChip: no chip of that name.
        """
        found = get_chip(chip) if isinstance(chip, str) else chip
        seconds = {"compute": 0.0, "memory": 0.0}
        for line in self.ledger:
            under = roof(line, found)
            if under.seconds is not None:
                seconds[under.bound] += under.seconds
        return seconds

    # ------------------------------------------------------------------------------------------------------- memory

    @property
    def step_events(self) -> int:
        """Number of events before the step that the ledger is of."""
        return self.timeline.call_positions[self.first_call] if self.calls else 0

    def peak(self) -> Peak:
        """Peak of the tensors from the model's creation to the end."""
        return self.timeline.peak()

    def reserve(
        self,
        settings: AllocatorSettings | None = None,
        *,
        capacity_bytes: int | None = None,
        outside_bytes: int = 0,
        since: str = "",
        seed: int | None = None,
    ) -> Reserved:
        """What the CUDA caching allocator makes of the step: allocated, reserved, fragmentation, whether it fits.

        The buffers that CUDA's kernels are known to hold beside their results are in it, where the target is `cuda`.

        Args:
            settings: the allocator's options, PyTorch's defaults without.
            capacity_bytes: memory of the device; the replay ends where an allocation fails. `None` for no end.
            outside_bytes: of these, what the allocator cannot have: contexts, NCCL, other processes.
            since: peaks count from this mark on (`step 2`).
            seed: draws the order of the addresses that the driver gives (`memory.reserve`).

        Raises:
            KeyError: there is no such mark.
        """
        held = scratch_by_call(self.calls) if self.target == "cuda" else {}
        return reserve(
            self.timeline,
            settings,
            scratch={call: [each.num_bytes for each in buffers if each.num_bytes] for call, buffers in held.items()},
            capacity_bytes=capacity_bytes,
            outside_bytes=outside_bytes,
            since=self.timeline.marks[since] if since else 0,
            seed=seed,
        )

    @property
    def kept_bytes(self) -> int:
        """Bytes of new storage on the device that the step's forward pass keeps for its backward pass.

        Gradients that the forward pass makes already are among them (a loss in pieces).
        """
        return sum(
            block.num_bytes
            for block in self.timeline.blocks
            if block.part in {"activations", "gradients"}
            and block.phase == "forward"
            and block.call >= self.first_call
            and not block.on_host
        )
