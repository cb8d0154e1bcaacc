"""`Trace`: what looking at a step gave."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.ledger import Ledger
from torchledger.memory import Peak, Timeline
from torchledger.tracer.call import Call


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
    """

    ledger: Ledger
    timeline: Timeline
    calls: tuple[Call, ...]
    first_call: int
    num_parameters: int
    assumptions: tuple[str, ...] = ()

    @property
    def step_events(self) -> int:
        """Number of events before the step that the ledger is of."""
        return self.timeline.call_positions[self.first_call] if self.calls else 0

    def peak(self) -> Peak:
        """Peak of the tensors from the model's creation to the end."""
        return self.timeline.peak()

    @property
    def kept_bytes(self) -> int:
        """Bytes of new storage that the step's forward pass keeps for its backward pass."""
        return sum(
            block.num_bytes
            for block in self.timeline.blocks
            if block.part == "activations" and block.phase == "forward" and block.call >= self.first_call
        )
