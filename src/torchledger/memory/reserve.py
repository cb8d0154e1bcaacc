"""What the caching allocator makes of a timeline: allocated, active and reserved bytes, fragmentation, failure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from torchledger.memory.allocator import CachingAllocator, DeviceOutOfMemory
from torchledger.memory.device import PlainDevice
from torchledger.memory.segment import Segment, segments_of
from torchledger.memory.settings import AllocatorSettings
from torchledger.memory.statistic import AllocatorStatistics
from torchledger.memory.timeline import Block, Timeline


@dataclass(frozen=True, slots=True)
class Amounts:
    """Bytes by the names of `torch.cuda.memory_stats`, at one moment or each at its own peak.

    Attributes:
        requested_bytes: what the tensors need.
        allocated_bytes: what their blocks take; rounding and unsplit remainders are in it.
        active_bytes: the same, and what other streams may still read.
        reserved_bytes: what was taken from the device.
        inactive_split_bytes: free bytes in segments that hold something else.
    """

    requested_bytes: int
    allocated_bytes: int
    active_bytes: int
    reserved_bytes: int
    inactive_split_bytes: int

    @property
    def unused_bytes(self) -> int:
        """Reserved and not in use: fragmentation and what is merely kept."""
        return self.reserved_bytes - self.active_bytes


@dataclass(frozen=True, slots=True)
class Workspace:
    """Memory that a library takes from the allocator once and keeps.

    Attributes:
        name: whose it is, in words.
        num_bytes: its size.
        position: how many events of the timeline come before it is taken.
        stream: the stream it is for.
    """

    name: str
    num_bytes: int
    position: int
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that the device could not serve.

    Attributes:
        position: how many events of the timeline had happened.
        block: the block that was to be allocated, or the workspace as a block.
        segment_bytes: what was asked from the device for it.
        free_bytes: what the device still had, after everything unused had gone back to it.
        at: allocated, reserved and so on at that moment.
        live: blocks of the timeline that were live, largest first.
    """

    position: int
    block: Block
    segment_bytes: int
    free_bytes: int
    at: Amounts
    live: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Reserved:
    """A timeline under the caching allocator.

    Attributes:
        settings: the allocator's options.
        peak: each amount at its own peak, from `since` on.
        end: the amounts after the last event.
        allocated_curve, reserved_curve: bytes after 0, 1, ... events.
        segments: what was reserved at the end, by address.
        num_retries: how often everything unused went back to the device to make room.
        num_device_allocations, num_device_frees: calls to the device.
        failure: the request that failed, if one did; the replay ends there.
    """

    settings: AllocatorSettings
    peak: Amounts
    end: Amounts
    allocated_curve: tuple[int, ...] = field(repr=False)
    reserved_curve: tuple[int, ...] = field(repr=False)
    segments: tuple[Segment, ...] = field(repr=False)
    num_retries: int
    num_device_allocations: int
    num_device_frees: int
    failure: Failure | None = None

    @property
    def fits(self) -> bool:
        """Whether every request was served."""
        return self.failure is None


def reserve(
    timeline: Timeline,
    settings: AllocatorSettings | None = None,
    *,
    workspaces: Iterable[Workspace] = (),
    scratch: Mapping[int, Sequence[int]] | None = None,
    capacity_bytes: int | None = None,
    outside_bytes: int = 0,
    since: int = 0,
    seed: int | None = None,
) -> Reserved:
    """Replay a timeline on the model of the caching allocator.

    Blocks on the host and blocks of no bytes never reach it. Each block goes to its stream's pool and is free at once
    when it is freed.

    Args:
        timeline: the allocations and frees of a process, from its start.
        settings: the allocator's options, PyTorch's defaults without.
        workspaces: memory of libraries that is not in the timeline.
        scratch: for a call's index, the bytes of each buffer that its kernel holds beside its results, in order. They
            are taken when the results are there, and given back when the call returns.
        capacity_bytes: memory of the device, `None` for no end.
        outside_bytes: of these, bytes that the allocator cannot have: contexts, NCCL, other processes.
        since: peaks count from the moment after so many events (`timeline.marks["step 2"]`).
        seed: draws the order of the addresses that the driver gives, `None` is ascending. The lowest of equal free
            blocks is taken first, so reserved bytes differ a little with it; several seeds show by how much.

    >>> step = Timeline((Block(3 << 20, "activations", allocated=0, freed=1),), num_events=2)
    >>> reserve(step).peak.reserved_bytes == 20 << 20
    True
    """
    device = PlainDevice(None if capacity_bytes is None else capacity_bytes - outside_bytes, seed=seed)
    replay = _Replay(timeline, CachingAllocator(settings, capacity_bytes, device=device), device)
    replay.hold(scratch or {})
    return replay.run(sorted(workspaces, key=lambda each: each.position), since)


class _Replay:
    """One run of a timeline through an allocator."""

    def __init__(self, timeline: Timeline, allocator: CachingAllocator, device: PlainDevice) -> None:
        self.timeline = timeline
        self.allocator = allocator
        self.device = device
        self.addresses: dict[int, int] = {}
        self.failure: Failure | None = None
        self.scratch: dict[int, list[tuple[int, Sequence[int]]]] = {}

    def hold(self, scratch: Mapping[int, Sequence[int]]) -> None:
        """Put each call's buffers at the moment when its results are there."""
        moments = {call: self.timeline.call_positions[call] for call in scratch}
        for block in self.timeline.blocks:
            if block.call in moments and block.part != "workspace":
                moments[block.call] = max(moments[block.call], block.allocated + 1)
        for call, sizes in scratch.items():
            self.scratch.setdefault(moments[call], []).append((call, sizes))

    def run(self, workspaces: Sequence[Workspace], since: int) -> Reserved:
        """Every event in order, until one fails."""
        blocks, allocator, statistics = self.timeline.blocks, self.allocator, self.allocator.statistics
        allocated, reserved = [0], [0]
        waiting = list(reversed(workspaces))
        for position, event in enumerate(self.timeline.events()):
            if position == since:
                statistics.reset_peaks()
            while waiting and waiting[-1].position <= position and self.failure is None:
                self._take(waiting.pop(), position)
            self._use_scratch(position)
            block = blocks[event.block]
            if self.failure is None and block.num_bytes and not block.on_host:
                if block.allocated == position:
                    self._allocate(event.block, block, position)
                else:
                    allocator.free(self.addresses.pop(event.block))
            if self.failure is not None:
                break
            allocated.append(statistics.allocated.current)
            reserved.append(statistics.reserved.current)
        if since >= self.timeline.num_events:
            statistics.reset_peaks()
        self._use_scratch(self.timeline.num_events)
        for each in reversed(waiting):
            if self.failure is None:
                self._take(each, self.timeline.num_events)
                allocated[-1], reserved[-1] = statistics.allocated.current, statistics.reserved.current
        return Reserved(
            allocator.settings,
            peaks(statistics),
            amounts(statistics),
            tuple(allocated),
            tuple(reserved),
            segments_of(allocator),
            statistics.num_retries,
            statistics.num_device_allocations,
            statistics.num_device_frees,
            self.failure,
        )

    def _allocate(self, number: int, block: Block, position: int) -> None:
        try:
            self.addresses[number] = self.allocator.malloc(block.num_bytes, block.stream)
        except DeviceOutOfMemory as error:
            self._fail(block, position, error.segment_bytes)

    def _take(self, each: Workspace, position: int) -> None:
        try:
            self.allocator.malloc(each.num_bytes, each.stream)
        except DeviceOutOfMemory as error:
            block = Block(each.num_bytes, "workspace", name=each.name, allocated=position, stream=each.stream)
            self._fail(block, position, error.segment_bytes)

    def _use_scratch(self, position: int) -> None:
        """What kernels hold between entry and return, where their results have just been made."""
        for call, sizes in self.scratch.get(position, ()):
            held: list[int] = []
            for num_bytes in sizes:
                if self.failure is None and num_bytes:
                    try:
                        held.append(self.allocator.malloc(num_bytes))
                    except DeviceOutOfMemory as error:
                        block = Block(num_bytes, "temporaries", name="scratch", call=call, allocated=position)
                        self._fail(block, position, error.segment_bytes)
            for address in held:
                self.allocator.free(address)

    def _fail(self, block: Block, position: int, segment_bytes: int) -> None:
        now = amounts(self.allocator.statistics)
        free_bytes = self.device.free_bytes
        assert free_bytes is not None, "a device without end serves every request"
        self.failure = Failure(position, block, segment_bytes, free_bytes, now, self.timeline.live_at(position))


def amounts(statistics: AllocatorStatistics) -> Amounts:
    """What an allocator holds now."""
    s = statistics
    return Amounts(
        s.requested.current, s.allocated.current, s.active.current, s.reserved.current, s.inactive_split.current
    )


def peaks(statistics: AllocatorStatistics) -> Amounts:
    """The most of each that it held since its peaks were reset."""
    s = statistics
    return Amounts(s.requested.peak, s.allocated.peak, s.active.peak, s.reserved.peak, s.inactive_split.peak)
