"""The segments that an allocator holds, block by block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchledger.memory.allocator import CachingAllocator
from torchledger.memory.pool import MemoryBlock

BlockState: TypeAlias = Literal["allocated", "waiting", "free"]


@dataclass(frozen=True, slots=True)
class SegmentBlock:
    """A piece of a segment.

    Attributes:
        address: where it begins.
        num_bytes: its size.
        requested_bytes: what was asked for, 0 for a free one.
        state: `waiting` is given back and still read by another stream.
    """

    address: int
    num_bytes: int
    requested_bytes: int
    state: BlockState


@dataclass(frozen=True, slots=True)
class Segment:
    """Contiguous memory that was taken from the device.

    Attributes:
        address: where it begins.
        num_bytes: its size.
        stream: the stream it belongs to.
        is_small: whether it is of the small pool.
        is_expandable: whether it is mapped pages of an expandable segment.
        blocks: its pieces by address.
    """

    address: int
    num_bytes: int
    stream: str
    is_small: bool
    is_expandable: bool
    blocks: tuple[SegmentBlock, ...]

    @property
    def allocated_bytes(self) -> int:
        """Bytes that callers hold."""
        return sum(block.num_bytes for block in self.blocks if block.state == "allocated")


def segments_of(allocator: CachingAllocator) -> tuple[Segment, ...]:
    """What an allocator has from the device, by address (`snapshot` of CUDACachingAllocator.cpp)."""
    return tuple(
        sorted((_segment(head) for head in allocator.blocks() if _is_head(head)), key=lambda each: each.address)
    )


def _is_head(block: MemoryBlock) -> bool:
    return block.before is None or not block.before.is_mapped


def _segment(head: MemoryBlock) -> Segment:
    pieces, block = [], head
    while True:
        state: BlockState = "allocated" if block.is_allocated else "free" if block.is_free else "waiting"
        requested = 0 if state == "free" else block.requested
        pieces.append(SegmentBlock(block.address, block.size, requested, state))
        if block.after is None or not block.after.is_mapped:
            break
        block = block.after
    num_bytes = sum(piece.num_bytes for piece in pieces)
    return Segment(head.address, num_bytes, head.stream, head.pool.is_small, head.range is not None, tuple(pieces))
