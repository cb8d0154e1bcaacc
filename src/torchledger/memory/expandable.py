"""Expandable segments: one range of addresses for a stream and pool, with memory behind its pages as needed."""

from __future__ import annotations

from torchledger.memory.constants import CUDA
from torchledger.memory.device import DeviceMemory
from torchledger.memory.pool import AddressRange, BlockPool, FreeBlocks, MemoryBlock, merge
from torchledger.memory.settings import AllocatorSettings
from torchledger.memory.statistic import AllocatorStatistics

# Room for the addresses of a device whose memory is not known; far more than any has.
_ENDLESS_BYTES = 1 << 44


class ExpandableSegments:
    """The part of the caching allocator that maps and unmaps pages.

    Args:
        settings: the allocator's options.
        device: where pages come from.
        statistics: of the allocator; reserved bytes are counted here.
        capacity_bytes: memory of the device, which bounds the addresses of a segment.
    """

    def __init__(
        self,
        settings: AllocatorSettings,
        device: DeviceMemory,
        statistics: AllocatorStatistics,
        capacity_bytes: int | None,
    ) -> None:
        self._settings = settings
        self._device = device
        self._statistics = statistics
        eighths = CUDA.address_space_eighths
        self._room_bytes = _ENDLESS_BYTES if capacity_bytes is None else eighths * capacity_bytes // 8

    def best_from(self, free: FreeBlocks, position: int) -> int:
        """The best fit from the first fit on, where a block counts with the addresses it can still grow into.

        The middle of `get_free_block`: go on while the next block could become less large.
        """
        while (
            free.at(position).range is not None
            and position + 1 < len(free)
            and _possible_size(free.at(position + 1)) < _possible_size(free.at(position))
        ):
            position += 1
        return position

    def grow(self, pool: BlockPool, size: int, stream: str) -> MemoryBlock | None:
        """A free block of at least `size` bytes, with pages mapped as needed (`try_allocate_expandable_block`).

        `None` where the device has not enough; pages mapped until then stay free in the pool.
        """
        block = self._first_room(pool, size, stream)
        if not block.is_mapped and not self._map(block, min(block.size, size)):
            return None
        while block.size < size:
            after = block.after
            assert after is not None, "the room was found before"
            if not self._map(after, min(size - block.size, after.size)):
                return None
            block = after
        pool.remove_free(block)
        return block

    def shrink(self, block: MemoryBlock) -> None:
        """Take the memory from whole pages inside a free block (`unmap_block`)."""
        assert block.range is not None
        address, num_bytes = block.range.pages_within(block.address, block.size)
        if not num_bytes:
            return
        pool = block.pool
        pool.remove_free(block)
        for begin, size, is_first in (
            (block.address, address - block.address, True),
            (address + num_bytes, block.address + block.size - address - num_bytes, False),
        ):
            if size:
                left = MemoryBlock(block.stream, size, pool, begin, block.range)
                left.place_between(*((block.before, block) if is_first else (block, block.after)))
                pool.add_free(left)
        block.address, block.size, block.is_mapped = address, num_bytes, False
        self._merge_around(block)
        self._device.unmap_pages(address, num_bytes)
        self._statistics.reserved.add(-num_bytes)
        self._statistics.num_device_frees += 1
        if block.is_split:
            pool.add_unmapped(block)

    def room_bytes(self, *, is_small: bool) -> int:
        """Bytes of addresses of a new segment: whole pages."""
        page_bytes = self._settings.page_size(is_small=is_small)
        return -(-self._room_bytes // page_bytes) * page_bytes

    def _first_room(self, pool: BlockPool, size: int, stream: str) -> MemoryBlock:
        """The lowest addresses, free or without memory, that have room; a new segment otherwise.

        `find_expandable_block`.
        """
        for unmapped in pool.unmapped.get(stream, ()):
            before = unmapped.before
            start = before if before is not None and before.is_free else unmapped
            room, here = 0, start
            while room < size and here.is_free:
                room += here.size
                if here.after is None:
                    break
                here = here.after
            if room >= size:
                return start
        page_bytes = self._settings.page_size(is_small=pool.is_small)
        room_bytes = self.room_bytes(is_small=pool.is_small)
        addresses = AddressRange(self._device.reserve_addresses(room_bytes), page_bytes, room_bytes)
        block = MemoryBlock(stream, room_bytes, pool, addresses.address, addresses)
        block.is_mapped = False
        pool.add_unmapped(block)
        return block

    def _map(self, block: MemoryBlock, num_bytes: int) -> bool:
        """Put memory behind the first pages of unmapped addresses (`map_block`)."""
        assert block.range is not None
        size = block.range.pages_around(block.address, num_bytes)
        if not self._device.map_pages(block.address, size):
            return False
        pool = block.pool
        pool.remove_unmapped(block)
        block.is_mapped = True
        if size < block.size:
            rest = MemoryBlock(block.stream, block.size - size, pool, block.address + size, block.range)
            rest.is_mapped = False
            rest.place_between(block, block.after)
            pool.add_unmapped(rest)
            block.size = size
        self._merge_around(block)
        pool.add_free(block)
        self._statistics.reserved.add(size)
        self._statistics.num_device_allocations += 1
        return True

    @staticmethod
    def _merge_around(block: MemoryBlock) -> None:
        merge(block, block.before)
        merge(block, block.after)


def _possible_size(block: MemoryBlock) -> int:
    """What a free block can grow to: `expandable_size` in `get_free_block`."""
    after = block.after
    return block.size + (after.size if after is not None and not after.is_mapped else 0)
