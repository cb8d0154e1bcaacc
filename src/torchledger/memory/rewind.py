"""What memory looked like when a record began: the final segments, with the recorded events undone, last first.

Errors: `SnapshotError` - the events and the final segments do not belong together.

An event of a free tells what was asked for, not how large the block was: in the large pool a block may be up to 1 MiB
larger than its request. Whatever lies between it and its neighbour and is no more than that cannot be a free block,
for those are larger there; if there is more, a later allocation in between shows where the block ended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from torchledger.memory.constants import CUDA
from torchledger.memory.frames import Origin
from torchledger.memory.settings import AllocatorSettings
from torchledger.memory.snapshot import DeviceRecord, SnapshotError, TraceEvent


@dataclass(slots=True)
class StartBlock:
    """A block that was held when the record began.

    Attributes:
        address: where it begins.
        requested_bytes: what was asked for.
        num_bytes: its size.
        is_waiting: whether its owner had given it back and another stream still read it.
        origin: where it was allocated, as far as known.
        is_certain: whether its size is known, and not only likely.
    """

    address: int
    requested_bytes: int
    num_bytes: int | None
    is_waiting: bool
    origin: Origin
    is_certain: bool = True


@dataclass(slots=True)
class StartSegment:
    """A segment that existed when the record began, with the blocks held in it by address."""

    address: int
    num_bytes: int
    stream: str
    is_small: bool
    is_expandable: bool
    blocks: list[StartBlock] = field(default_factory=list)


def rewind(record: DeviceRecord) -> list[StartSegment]:
    """Segments and held blocks when the record began, by address.

    Raises:
        SnapshotError: an event tells of a block or segment that cannot have been there.
    """
    state = _State(record)
    for event in reversed(record.events):
        state.undo(event)
    segments = sorted(state.segments.values(), key=lambda segment: segment.address)
    _place(state.live.values(), segments)
    _find_sizes(segments, record.settings, record.events)
    return segments


class _State:
    """What is held and reserved, going backwards."""

    def __init__(self, record: DeviceRecord) -> None:
        self.segments = {
            each.address: StartSegment(each.address, each.num_bytes, each.stream, each.is_small, each.is_expandable)
            for each in record.segments
        }
        self.live = {
            block.address: StartBlock(
                block.address, block.requested_bytes, block.num_bytes, block.is_waiting, block.origin
            )
            for segment in record.segments
            for block in segment.blocks
            if block.is_held
        }

    def undo(self, event: TraceEvent) -> None:
        """Go back before an event."""
        match event.action:
            case "alloc":
                if self.live.pop(event.address, None) is None:
                    raise _contradiction(event, "is not held afterwards")
            case "free_completed":
                if event.address in self.live:
                    raise _contradiction(event, "is held afterwards")
                # The event's stack may be that of the free; where it was allocated is not known.
                self.live[event.address] = StartBlock(event.address, event.num_bytes, None, True, Origin())
            case "free_requested":
                if event.address not in self.live:
                    raise _contradiction(event, "is not waited for afterwards")
                self.live[event.address].is_waiting = False
            case "segment_alloc":
                if self.segments.pop(event.address, None) is None:
                    raise _contradiction(event, "is not there afterwards")
            case "segment_free":
                is_small = event.num_bytes == CUDA.small_segment_bytes
                self.segments[event.address] = StartSegment(
                    event.address, event.num_bytes, event.stream, is_small, is_expandable=False
                )
            case "segment_map":
                self._take_pages(event)
            case "segment_unmap":
                self._put_pages(event)
            case _:
                pass

    def _take_pages(self, event: TraceEvent) -> None:
        begin, end = event.address, event.address + event.num_bytes
        for segment in list(self.segments.values()):
            if segment.is_expandable and segment.address <= begin and end <= segment.address + segment.num_bytes:
                del self.segments[segment.address]
                self._keep(segment, segment.address, begin)
                self._keep(segment, end, segment.address + segment.num_bytes)
                return
        raise _contradiction(event, "is not there afterwards")

    def _keep(self, segment: StartSegment, begin: int, end: int) -> None:
        if end > begin:
            self.segments[begin] = StartSegment(
                begin, end - begin, segment.stream, segment.is_small, is_expandable=True
            )

    def _put_pages(self, event: TraceEvent) -> None:
        is_small = event.num_bytes % CUDA.large_segment_bytes != 0
        begin, end = event.address, event.address + event.num_bytes
        for segment in list(self.segments.values()):
            if segment.is_expandable and segment.address + segment.num_bytes == begin:
                begin, is_small = segment.address, segment.is_small
                del self.segments[segment.address]
            elif segment.is_expandable and segment.address == end:
                end, is_small = segment.address + segment.num_bytes, segment.is_small
                del self.segments[segment.address]
        self.segments[begin] = StartSegment(begin, end - begin, event.stream, is_small, is_expandable=True)


def _contradiction(event: TraceEvent, what: str) -> SnapshotError:
    return SnapshotError(
        f"the record contradicts itself: {event.action} of {event.num_bytes} bytes at {event.address:#x},"
        f" which {what}; parts of the history are missing ({_REMEDY})"
    )


_REMEDY = "torch.cuda.memory._record_memory_history takes max_entries"


def _place(live: Iterable[StartBlock], segments: list[StartSegment]) -> None:
    """Put each held block into its segment."""
    starts = [segment.address for segment in segments]
    for block in sorted(live, key=lambda each: each.address):
        index = bisect_right(starts, block.address) - 1
        if index < 0 or block.address >= starts[index] + segments[index].num_bytes:
            raise SnapshotError(
                f"the record contradicts itself: a block of {block.requested_bytes} bytes at {block.address:#x}"
                f" lies in no segment; parts of the history are missing ({_REMEDY})"
            )
        segments[index].blocks.append(block)


def _find_sizes(segments: list[StartSegment], settings: AllocatorSettings, events: tuple[TraceEvent, ...]) -> None:
    """Give every block its size."""
    open_ends: dict[int, StartBlock] = {}
    for segment in (each for each in segments if each.blocks):
        ends = [block.address for block in segment.blocks[1:]] + [segment.address + segment.num_bytes]
        keeps_rest = not (segment.is_small or segment.is_expandable or settings.expandable_segments)
        for block, end in zip(segment.blocks, ends, strict=True):
            if block.num_bytes is not None:
                continue
            block.num_bytes = settings.round_size(block.requested_bytes)
            rest = end - block.address - block.num_bytes
            if rest < 0:
                raise SnapshotError(
                    f"the record contradicts itself: a block of {block.requested_bytes} bytes at {block.address:#x}"
                    f" has only {end - block.address} bytes to its neighbour"
                )
            if 0 < rest <= CUDA.small_request_bytes and keeps_rest:
                block.num_bytes += rest
            elif rest and keeps_rest:
                block.is_certain = False
                open_ends[block.address + block.num_bytes] = block
    if open_ends:
        _settle(open_ends, events)


def _settle(open_ends: dict[int, StartBlock], events: tuple[TraceEvent, ...]) -> None:
    """Allocations right behind a block, while it is held, show where it ended."""
    ends = sorted(open_ends)
    by_address = {block.address: end for end, block in open_ends.items()}
    for event in events:
        if event.action == "free_completed" and event.address in by_address:
            end = by_address.pop(event.address)
            open_ends.pop(end, None)
        elif event.action == "alloc":
            index = bisect_right(ends, event.address) - 1
            end = ends[index] if index >= 0 else -1
            block = open_ends.get(end)
            if block is not None and event.address - end <= CUDA.small_request_bytes:
                assert block.num_bytes is not None
                block.num_bytes += event.address - end
                block.is_certain = True
                del open_ends[end]
