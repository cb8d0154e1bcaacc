"""`Record`: everything that a recorder has written, so that it can be rewritten as one."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.tracer.call import Call
from torchledger.tracer.storages import Entry


@dataclass(frozen=True, slots=True)
class Record:
    """What was recorded.

    Attributes:
        calls: operation calls in order.
        positions: for every call, how many events had happened when it began.
        entries: storages in order of allocation.
        num_events: allocations and frees together.
        starts_of_backward: events that had happened when each backward pass began.
        marks: named moments, as events and calls that had happened.
    """

    calls: list[Call]
    positions: list[int]
    entries: list[Entry]
    num_events: int
    starts_of_backward: list[int]
    marks: dict[str, tuple[int, int]]
