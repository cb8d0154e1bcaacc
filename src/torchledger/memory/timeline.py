"""`Timeline`: every allocation and free of a run in order. Its sweep gives the live set and the peak.

Peak memory is not additive, so it is never the total of a ledger. A timeline knows nothing of torch: whoever looked at
a run (fake or real) fills it, an allocator model or a chart reads it.

    >>> timeline = Timeline(
    ...     blocks=(
    ...         Block(100, "parameters", allocated=0, name="weight"),
    ...         Block(40, "activations", allocated=1, freed=3),
    ...         Block(8, "temporaries", allocated=2),
    ...     ),
    ...     num_events=4,
    ... )
    >>> timeline.peak().peak_bytes, timeline.live_bytes_at(4)
    (148, 108)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

Part: TypeAlias = Literal[
    "parameters",
    "gradients",
    "optimizer state",
    "activations",
    "autocast casts",
    "temporaries",
    "inputs",
    "buffers",
    "communication",
    "workspace",
]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Block:
    """One storage from its allocation to its free.

    Attributes:
        num_bytes: size in bytes.
        part: what it is for. `activations` outlive the forward pass that made them, `temporaries` do not.
            `autocast casts` are low-precision copies of weights that autocast keeps until it ends, `communication`
            are buffers of collectives, `workspace` is memory that a library keeps for its kernels.
        module: path of the module that made it; "" is the step itself.
        op: operation that made it (`aten.mm.default`); "" where it existed before recording began.
        phase: phase of the step in which it was made.
        name: name of the parameter or buffer it belongs to, where it has one.
        shape: shape of the first tensor seen on it.
        number_format: number format of that tensor (`fp32`, `bf16`, `int64`).
        source: source line of the user's code, where known.
        call: index of the operation call that made it, -1 for none.
        allocated: index of the event that allocates it.
        freed: index of the event that frees it, `None` when it outlives the recording.
        on_host: whether it stands in the host's memory while the step runs on an accelerator (an optimizer's step
            counters, offloaded state). It is then in the blocks, and in no curve, peak or live set.
        stream: name of the accelerator stream it is allocated on, "" is the default one.
    """

    num_bytes: int
    part: Part
    module: str = ""
    op: str = ""
    phase: str = "forward"
    name: str = ""
    shape: tuple[int, ...] = ()
    number_format: str = "fp32"
    source: str = ""
    call: int = -1
    allocated: int = 0
    freed: int | None = None
    on_host: bool = False
    stream: str = ""

    def is_live(self, position: int) -> bool:
        """Whether it is live after the first `position` events."""
        return self.allocated < position and (self.freed is None or self.freed >= position)


@dataclass(frozen=True, slots=True)
class Event:
    """One allocation or free: which block, and by how much the live bytes change."""

    block: int
    delta_bytes: int

    @property
    def is_free(self) -> bool:
        """Whether the block is freed here."""
        return self.delta_bytes < 0


@dataclass(frozen=True, slots=True)
class Peak:
    """The moment with the most live bytes.

    Attributes:
        peak_bytes: live bytes at that moment, what a kernel holds inside its call included.
        position: number of events that had happened.
        call: index of the call that was running, `None` if it was reached between the calls' own events.
        internal_bytes: bytes that call held inside; its outputs are among them and are not in `blocks` yet.
        blocks: the blocks that were live, largest first.
    """

    peak_bytes: int
    position: int
    call: int | None
    internal_bytes: int
    blocks: tuple[Block, ...]

    def by_part(self) -> dict[str, int]:
        """Bytes by part, in the order of `PARTS`; what the running kernel held stands under `inside the kernel`."""
        held: dict[str, int] = dict.fromkeys(PARTS, 0)
        for block in self.blocks:
            held[block.part] += block.num_bytes
        if self.internal_bytes:
            held["inside the kernel"] = self.internal_bytes
        return {part: num_bytes for part, num_bytes in held.items() if num_bytes}

    def by_module(self) -> dict[str, int]:
        """Bytes by module path, largest first."""
        held: dict[str, int] = {}
        for block in self.blocks:
            held[block.module] = held.get(block.module, 0) + block.num_bytes
        return dict(sorted(held.items(), key=lambda item: -item[1]))


@dataclass(frozen=True, slots=True)
class Timeline:
    """Allocations and frees in order.

    Attributes:
        blocks: every storage, in order of allocation.
        num_events: allocations and frees together.
        call_positions: for every operation call, how many events had happened when it began.
        marks: named positions (`step 2` begins after that many events).
    """

    blocks: tuple[Block, ...] = ()
    num_events: int = 0
    call_positions: tuple[int, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)

    def events(self) -> list[Event]:
        """The events in order."""
        found: list[Event | None] = [None] * self.num_events
        for number, block in enumerate(self.blocks):
            found[block.allocated] = Event(number, block.num_bytes)
            if block.freed is not None:
                found[block.freed] = Event(number, -block.num_bytes)
        events = [event for event in found if event is not None]
        assert len(events) == self.num_events, "every event index belongs to exactly one block"
        return events

    def curve(self) -> list[int]:
        """Live bytes after 0, 1, ... `num_events` events; what stands on the host is left out."""
        deltas = [0] * (self.num_events + 1)
        for block in self.blocks:
            if block.on_host:
                continue
            deltas[block.allocated + 1] += block.num_bytes
            if block.freed is not None:
                deltas[block.freed + 1] -= block.num_bytes
        live, curve = 0, deltas
        for position, delta in enumerate(deltas):
            live += delta
            curve[position] = live
        return curve

    def outline(self, max_points: int = 1000) -> list[tuple[int, int]]:
        """The curve in at most `max_points` points `(position, bytes)` for drawing; each stretch keeps its highest."""
        curve = self.curve()
        stretch = -(-len(curve) // max_points)
        starts = range(0, len(curve), stretch)
        tops = (max(range(s, min(s + stretch, len(curve))), key=curve.__getitem__) for s in starts)
        return [(top, curve[top]) for top in tops]

    def live_bytes_at(self, position: int) -> int:
        """Live bytes after the first `position` events."""
        return sum(block.num_bytes for block in self.live_at(position))

    def live_at(self, position: int) -> tuple[Block, ...]:
        """Blocks that are live after the first `position` events, largest first; not those on the host."""
        live = (block for block in self.blocks if not block.on_host and block.is_live(position))
        return tuple(sorted(live, key=lambda block: -block.num_bytes))

    def peak(self, *, internal: Mapping[int, int] | None = None, since: int = 0) -> Peak:
        """The moment with the most live bytes.

        Args:
            internal: for a call's index, the most bytes that its kernel holds between entry and return, outputs
                included, in bytes. A call is then worth `live before it + internal`. Without it the tensors alone
                are counted.
            since: only moments after that many events (`marks["step 2"]`).
        """
        curve = self.curve()
        position = max(range(since, len(curve)), key=curve.__getitem__)
        best, call, inside = curve[position], None, 0
        for index, held in (internal or {}).items():
            before = self.call_positions[index]
            if before >= since and curve[before] + held > best:
                best, position, call, inside = curve[before] + held, before, index, held
        return Peak(best, position, call, inside, self.live_at(position))

    def live_at_peak(self, *, internal: Mapping[int, int] | None = None, since: int = 0) -> dict[str, int]:
        """Bytes by part at the peak."""
        return self.peak(internal=internal, since=since).by_part()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events())
