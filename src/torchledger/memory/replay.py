"""A snapshot's events on the model of the allocator: does it put every block where the real one put it?"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

from torchledger.memory.allocator import CachingAllocator
from torchledger.memory.frames import Origin
from torchledger.memory.pool import AddressRange, BlockPool, MemoryBlock
from torchledger.memory.rewind import StartSegment, rewind
from torchledger.memory.snapshot import DeviceRecord, SnapshotError, TraceEvent
from torchledger.memory.timeline import Block, Timeline

# Blocks that the record's owner gave back, until the record says that no other stream reads them.
_OTHER_STREAM = "(another stream)"
# Where the model's own segments stand when the record shows none: above every address of a device.
_BEYOND = 1 << 60


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A place where the model did something else.

    Attributes:
        event: index of the event.
        what: what was recorded and what the model did, in words.
        recorded, modelled: the two values.
    """

    event: int
    what: str
    recorded: int
    modelled: int | None


@dataclass(frozen=True, slots=True)
class Replayed:
    """A record under the model.

    Attributes:
        num_allocations: allocations in the record.
        num_same_address: of these, how many the model put at the recorded address.
        num_segments: segments, or stretches of pages, that the record took from the device.
        num_same_size: of these, how many the model asked for at that moment and in that size.
        mismatches: the others, in order.
        num_uncertain: blocks held at the start whose size is likely, not known.
        allocated_curve, active_curve, reserved_curve: bytes after 0, 1, ... events of the record.
        inactive_split_curve: free bytes in segments that hold something else, likewise.
        timeline: the record as blocks; `source` is where each was allocated. Its events are the allocations and the
            frees as they were asked for.
        positions: for 0, 1, ... events of the record, how many events of the timeline had happened.
    """

    num_allocations: int
    num_same_address: int
    num_segments: int
    num_same_size: int
    mismatches: tuple[Mismatch, ...]
    num_uncertain: int
    allocated_curve: tuple[int, ...] = field(repr=False)
    active_curve: tuple[int, ...] = field(repr=False)
    reserved_curve: tuple[int, ...] = field(repr=False)
    inactive_split_curve: tuple[int, ...] = field(repr=False)
    timeline: Timeline = field(repr=False)
    positions: tuple[int, ...] = field(repr=False)

    @property
    def agrees(self) -> bool:
        """Whether the model did everything that the record tells."""
        return not self.mismatches

    @property
    def peak_event(self) -> int:
        """After how many events of the record most was allocated."""
        return max(range(len(self.allocated_curve)), key=self.allocated_curve.__getitem__)


def replay(record: DeviceRecord) -> Replayed:
    """Rewind a record to its beginning and run its events on the model.

    Raises:
        SnapshotError: the events and the final segments do not belong together.
    """
    start = rewind(record)
    try:
        return _Replay(record, start).run()
    except (KeyError, ValueError, AssertionError) as error:
        # The model's own rules are proved on whole records; what breaks them here is a record that cannot have been.
        raise SnapshotError(
            "the record contradicts itself: its events cannot have happened in this order; parts of it are missing"
            " or were changed"
        ) from error


class _RecordedDevice:
    """Gives the memory that the record shows, and notes where the model asks for something else."""

    def __init__(self) -> None:
        self.offered: deque[TraceEvent] = deque()
        self.asked: list[int] = []
        self._beyond = _BEYOND

    def allocate(self, num_bytes: int) -> int | None:
        """The recorded segment, or one beyond all addresses where there is none."""
        self.asked.append(num_bytes)
        if self.offered:
            return self.offered.popleft().address
        self._beyond += num_bytes
        return self._beyond - num_bytes

    def release(self, address: int, num_bytes: int) -> None:
        """Nothing to do: the record says what is released."""

    def reserve_addresses(self, num_bytes: int) -> int:
        """Where the next recorded pages are mapped."""
        if self.offered:
            return self.offered[0].address
        self._beyond += num_bytes
        return self._beyond - num_bytes

    def map_pages(self, address: int, num_bytes: int) -> bool:  # noqa: ARG002 - the protocol's
        """The recorded pages."""
        self.asked.append(num_bytes)
        if self.offered:
            self.offered.popleft()
        return True

    def unmap_pages(self, address: int, num_bytes: int) -> None:
        """Nothing to do: the record says what is unmapped."""


class _Replay:
    """One run of a record on the model."""

    def __init__(self, record: DeviceRecord, start: list[StartSegment]) -> None:
        self.record = record
        self.device = _RecordedDevice()
        self.allocator = CachingAllocator(record.settings, device=self.device)
        self.num_uncertain = sum(not block.is_certain for segment in start for block in segment.blocks)
        self.mismatches: list[Mismatch] = []
        self.modelled: dict[int, int] = {}
        self.waiting: dict[int, MemoryBlock] = {}
        self.blocks: list[Block] = []
        self.numbers: dict[int, int] = {}
        self.freed: dict[int, int] = {}
        self.position = 0
        self.offered_sizes: list[int] = []
        self.num_same_address = self.num_same_size = 0
        self._restore(start)
        self.allocator.statistics.reset_peaks()

    def run(self) -> Replayed:
        """Every event in order."""
        statistics = self.allocator.statistics
        tracked = (statistics.allocated, statistics.active, statistics.reserved, statistics.inactive_split)
        curves: tuple[list[int], ...] = tuple([each.current] for each in tracked)
        positions = [self.position]
        for index, event in enumerate(self.record.events):
            match event.action:
                case "alloc":
                    self._allocate(index, event)
                case "free_requested":
                    self._free(event)
                case "free_completed":
                    self._complete(event)
                case "segment_alloc" | "segment_map":
                    self.device.offered.append(event)
                    self.offered_sizes.append(event.num_bytes)
                case "segment_free" | "segment_unmap":
                    self._release(index, event)
                case _:
                    pass
            for curve, each in zip(curves, tracked, strict=True):
                curve.append(each.current)
            positions.append(self.position)
        actions = [event.action for event in self.record.events]
        allocated, active, reserved, split = curves
        return Replayed(
            actions.count("alloc"),
            self.num_same_address,
            actions.count("segment_alloc") + actions.count("segment_map"),
            self.num_same_size,
            tuple(self.mismatches),
            self.num_uncertain,
            tuple(allocated),
            tuple(active),
            tuple(reserved),
            tuple(split),
            self._timeline(),
            tuple(positions),
        )

    # ------------------------------------------------------------------ the beginning

    def _restore(self, start: list[StartSegment]) -> None:
        """Build the segments that existed, block by block."""
        statistics = self.allocator.statistics
        ranges: dict[tuple[str, bool], MemoryBlock] = {}
        for segment in start:
            pool = self.allocator.small if segment.is_small else self.allocator.large
            first, last = self._fill(segment, pool)
            statistics.reserved.add(segment.num_bytes)
            if segment.is_expandable:
                self._place_in_range(ranges, segment, pool, first, last)
            else:
                statistics.segments.add(1)
                free = 0 if first is last else sum(end - begin for begin, end in _gaps(segment))
                statistics.inactive_split.add(free)
        for (_, is_small), last in ranges.items():
            self._open_end(last, self.allocator.small if is_small else self.allocator.large)

    def _fill(self, segment: StartSegment, pool: BlockPool) -> tuple[MemoryBlock, MemoryBlock]:
        """The pieces of one segment, held and free; its first and last one."""
        range_ = None
        if segment.is_expandable:
            page = self.allocator.settings.page_size(is_small=segment.is_small)
            range_ = AddressRange(segment.address, page, segment.num_bytes)
        held = {block.address: block for block in segment.blocks}
        pieces = [(b.address, b.num_bytes or 0) for b in segment.blocks]
        pieces += [(begin, end - begin) for begin, end in _gaps(segment)]
        first = last = None
        for address, size in sorted(pieces):
            piece = MemoryBlock(segment.stream, size, pool, address, range_)
            piece.place_between(last, None)
            first, last = first or piece, piece
            start = held.get(address)
            if start is None:
                pool.add_free(piece)
                continue
            piece.requested = start.requested_bytes
            self.allocator.adopt(piece)
            self._begin(address, start.requested_bytes, segment.stream, start.origin, "before the record")
            if start.is_waiting:
                self._end(address)
                self._wait(address)
        assert first is not None
        assert last is not None
        return first, last

    def _place_in_range(
        self,
        ranges: dict[tuple[str, bool], MemoryBlock],
        segment: StartSegment,
        pool: BlockPool,
        first: MemoryBlock,
        last: MemoryBlock,
    ) -> None:
        """Join mapped stretches of one stream and pool to one expandable segment."""
        key = (segment.stream, segment.is_small)
        before = ranges.get(key)
        if before is not None:
            assert before.range is not None
            gap = segment.address - before.address - before.size
            here: MemoryBlock | None = first
            while here is not None:
                here.range = before.range
                here = here.after
            if gap:
                hole = MemoryBlock(segment.stream, gap, pool, before.address + before.size, before.range)
                hole.is_mapped = False
                hole.place_between(before, first)
                pool.add_unmapped(hole)
            else:
                first.place_between(before, first.after)
        ranges[key] = last

    def _open_end(self, last: MemoryBlock, pool: BlockPool) -> None:
        """Addresses without memory behind the last pages, into which an expandable segment grows."""
        room = self.allocator.expandable.room_bytes(is_small=pool.is_small)
        end = MemoryBlock(last.stream, room, pool, last.address + last.size, last.range)
        end.is_mapped = False
        end.place_between(last, None)
        pool.add_unmapped(end)

    # ------------------------------------------------------------------ the events

    def _allocate(self, index: int, event: TraceEvent) -> None:
        expected, self.offered_sizes = self.offered_sizes, []
        self.device.asked.clear()
        address = self.allocator.malloc(event.num_bytes, event.stream)
        asked = list(self.device.asked)
        self.device.offered.clear()
        if asked == expected:
            self.num_same_size += len(expected)
        else:
            what = "bytes of new memory taken from the device"
            self.mismatches.append(Mismatch(index, what, sum(expected), sum(asked)))
        if address == event.address:
            self.num_same_address += 1
        elif asked == expected:
            self.mismatches.append(Mismatch(index, "address of a block", event.address, address))
        self.modelled[event.address] = address
        self._begin(event.address, event.num_bytes, event.stream, event.origin, "")

    def _free(self, event: TraceEvent) -> None:
        self._end(event.address)
        self._wait(event.address)

    def _complete(self, event: TraceEvent) -> None:
        block = self.waiting.pop(event.address, None)
        if block is not None:
            self.allocator.finish_block(block, _OTHER_STREAM)

    def _wait(self, recorded: int) -> None:
        address = self.modelled.pop(recorded, recorded)
        self.waiting[recorded] = self.allocator.live[address]
        self.allocator.record_stream(address, _OTHER_STREAM)
        self.allocator.free(address)

    def _release(self, index: int, event: TraceEvent) -> None:
        if not self.allocator.release_stretch(event.address, event.num_bytes):
            what = "bytes given back to the device"
            self.mismatches.append(Mismatch(index, what, event.num_bytes, None))

    # ------------------------------------------------------------------ the record as a timeline

    def _begin(self, address: int, num_bytes: int, stream: str, origin: Origin, phase: str) -> None:
        self.numbers[address] = len(self.blocks)
        self.blocks.append(
            Block(
                num_bytes,
                "temporaries",
                op=origin.node or origin.operation,
                phase=phase,
                source="(before the record)" if phase and not origin.line else origin.text,
                allocated=self.position,
                stream=stream,
            )
        )
        self.position += 1

    def _end(self, address: int) -> None:
        self.freed[self.numbers.pop(address)] = self.position
        self.position += 1

    def _timeline(self) -> Timeline:
        blocks = tuple(
            replace(block, freed=self.freed[number]) if number in self.freed else block
            for number, block in enumerate(self.blocks)
        )
        return Timeline(blocks, self.position)


def _gaps(segment: StartSegment) -> list[tuple[int, int]]:
    """Free stretches of a segment, begin and end."""
    found, here = [], segment.address
    for block in segment.blocks:
        if block.address > here:
            found.append((here, block.address))
        here = block.address + (block.num_bytes or 0)
    end = segment.address + segment.num_bytes
    return [*found, (here, end)] if here < end else found
