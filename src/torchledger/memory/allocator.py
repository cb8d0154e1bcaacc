"""PyTorch's native CUDA caching allocator, as a model: the same sizes, the same choices, the same addresses.

    DeviceOutOfMemory    a request fails even after everything unused went back to the device

The rules are those of `DeviceCachingAllocator` in c10/cuda/CUDACachingAllocator.cpp of PyTorch 2.13; each method names
the function that it follows. What the caller of the real one may not see either (locks, events of CUDA, history) is
left out. Streams finish their work when told so by `finish_streams`; memory freed while another stream uses it waits
until then, or until the allocator runs out and synchronises.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from torchledger.memory.constants import CUDA
from torchledger.memory.device import DeviceMemory, PlainDevice
from torchledger.memory.expandable import ExpandableSegments
from torchledger.memory.pool import BlockPool, MemoryBlock, PrivatePool, merge
from torchledger.memory.settings import AllocatorSettings
from torchledger.memory.statistic import AllocatorStatistics


class DeviceOutOfMemory(ValueError):
    """A request fails even after everything unused went back to the device.

    Attributes:
        requested_bytes: what was asked for.
        segment_bytes: what was therefore asked from the device.
    """

    def __init__(self, requested_bytes: int, segment_bytes: int) -> None:
        super().__init__(f"{requested_bytes} bytes need {segment_bytes} more from the device, which has not so many")
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes


class _Capture(NamedTuple):
    """Allocations that go to a private pool: those of some streams, or all."""

    pool: PrivatePool
    streams: frozenset[str] | None


class CachingAllocator:
    """The caching allocator of one device.

    >>> allocator = CachingAllocator()
    >>> address = allocator.malloc(1 << 21)
    >>> allocator.statistics.allocated.current, allocator.statistics.reserved.current
    (2097152, 20971520)

    Args:
        settings: its options.
        capacity_bytes: memory of the device; `None` for no end. `memory_fraction` is a share of it.
        outside_bytes: of these, bytes that others hold (contexts, NCCL, other processes).
        device: where memory comes from, instead of a plain device of that capacity.
    """

    def __init__(
        self,
        settings: AllocatorSettings | None = None,
        capacity_bytes: int | None = None,
        *,
        outside_bytes: int = 0,
        device: DeviceMemory | None = None,
    ) -> None:
        self.settings = settings or AllocatorSettings()
        plain = PlainDevice(None if capacity_bytes is None else capacity_bytes - outside_bytes)
        self.device = device or plain
        self.statistics = AllocatorStatistics()
        self.small = BlockPool(is_small=True)
        self.large = BlockPool(is_small=False)
        self.live: dict[int, MemoryBlock] = {}
        self.expandable = ExpandableSegments(self.settings, self.device, self.statistics, capacity_bytes)
        self._allowed_bytes: int | None = None
        if capacity_bytes is not None and self.settings.memory_fraction < 1:
            self._allowed_bytes = int(self.settings.memory_fraction * capacity_bytes)
        self._waiting: dict[str, list[MemoryBlock]] = {}
        self._after_capture: list[MemoryBlock] = []
        self._capture_uses: dict[int, set[str]] = {}
        self._captures: list[_Capture] = []
        self._private: list[PrivatePool] = []

    # ------------------------------------------------------------------ what a program does

    def malloc(self, num_bytes: int, stream: str = "") -> int:
        """Address of a new block for `num_bytes` bytes, to be used on a stream (`malloc`).

        PyTorch never asks for 0 bytes; neither should the caller.

        Raises:
            DeviceOutOfMemory: the device has no room, whatever is given back.
        """
        size = self.settings.round_size(num_bytes)
        pool = self._pool_of(size, stream)
        block = self._find_free(pool, size, stream) or self._find_new(pool, size, stream)
        if block is None:
            raise DeviceOutOfMemory(num_bytes, self.settings.segment_size(size))
        return self._hand_out(block, size, num_bytes).address

    def free(self, address: int) -> None:
        """Give a block back (`free`); it stays active while other streams use it."""
        block = self.live.pop(address)
        block.is_allocated = False
        self.statistics.allocated.add(-block.size)
        if not block.uses:
            self._make_free(block)
        elif self._captures:
            self._after_capture.append(block)
        else:
            self._wait_for_uses(block)

    def record_stream(self, address: int, stream: str) -> None:
        """Say that another stream works on a block (`torch.Tensor.record_stream`)."""
        block = self.live[address]
        if stream != block.stream:
            block.uses = (block.uses or set()) | {stream}
            if self._captures:
                self._capture_uses.setdefault(address, set()).add(stream)

    def finish_streams(self, streams: Collection[str] | None = None) -> None:
        """All work queued so far on some streams, or on all, is done: what waits for it alone is free."""
        if self._captures:
            return
        self._start_waiting()
        for stream in list(self._waiting) if streams is None else streams:
            for block in self._waiting.pop(stream, ()):
                block.waiting -= 1
                if not block.waiting:
                    self._make_free(block)

    def empty_cache(self) -> None:
        """Give every segment that holds nothing back to the device (`torch.cuda.empty_cache`)."""
        if not self._captures:
            self.finish_streams()
            self._release_unsplit(self.large)
            self._release_unsplit(self.small)
        for pool in [each for each in self._private if not each.num_users]:
            self._release_unsplit(pool.small)
            self._release_unsplit(pool.large)

    # ------------------------------------------------------------------ what a record says

    def adopt(self, block: MemoryBlock) -> None:
        """Count a block that is already placed in a segment as held."""
        block.is_allocated = True
        self.live[block.address] = block
        self.statistics.allocated.add(block.size)
        self.statistics.active.add(block.size)
        self.statistics.requested.add(block.requested)

    def finish_block(self, block: MemoryBlock, stream: str) -> None:
        """A stream no longer reads one block that was given back."""
        self._waiting[stream].remove(block)
        block.waiting -= 1
        if not block.waiting:
            self._make_free(block)

    def release_stretch(self, address: int, num_bytes: int) -> bool:
        """Give back the free segment or the free pages at an address; False where there are none of that size."""
        for pool in (self.large, self.small):
            for free in pool.free.values():
                block = free.blocks.get(address)
                if block is not None and block.range is None and block.size == num_bytes and not block.is_split:
                    self._release(block)
                    return True
                for each in free if self.settings.expandable_segments else ():
                    if each.range is not None and each.range.pages_within(each.address, each.size) == (
                        address,
                        num_bytes,
                    ):
                        self.expandable.shrink(each)
                        return True
        return False

    def blocks(self) -> list[MemoryBlock]:
        """Every block with memory behind it, in no order: held, waiting and free."""
        pools = [self.small, self.large]
        for private in self._private:
            pools += [private.small, private.large]
        waiting = {block for blocks in self._waiting.values() for block in blocks} | set(self._after_capture)
        return [*self.live.values(), *waiting, *(block for pool in pools for block in pool.free_blocks())]

    # ------------------------------------------------------------------ private pools

    def add_private_pool(self, *, splits: bool = True) -> PrivatePool:
        """A new pool for a CUDA graph, or for a `MemPool` (which may forbid splits)."""
        pool = PrivatePool(splits=splits)
        self._private.append(pool)
        return pool

    def begin_capture(self, pool: PrivatePool, streams: Collection[str] | None = None) -> None:
        """From now on allocations on some streams, or on all, come from a private pool (`beginAllocateToPool`)."""
        self._captures.append(_Capture(pool, None if streams is None else frozenset(streams)))

    def end_capture(self, pool: PrivatePool) -> None:
        """The last such beginning ends (`endAllocateToPool`)."""
        index = max(number for number, capture in enumerate(self._captures) if capture.pool is pool)
        del self._captures[index]

    def release_private_pool(self, pool: PrivatePool) -> None:
        """A graph that held a pool is gone (`releasePool`); unheld, its unused segments go when memory is released."""
        pool.num_users -= 1

    # ------------------------------------------------------------------ finding a block

    def _pool_of(self, size: int, stream: str) -> BlockPool:
        """Half of the default pool, or of the private one whose capture began last on that stream (`get_pool`)."""
        is_small = size <= CUDA.small_request_bytes
        for capture in reversed(self._captures):
            if capture.streams is None or stream in capture.streams:
                return capture.pool.small if is_small else capture.pool.large
        return self.small if is_small else self.large

    def _find_free(self, pool: BlockPool, size: int, stream: str) -> MemoryBlock | None:
        """The smallest free block of the stream that is large enough (`get_free_block`)."""
        settings = self.settings
        if self._collects_garbage:
            pool.num_searches += 1
        free = pool.free.get(stream)
        if free is None:
            return None
        position = free.first_of(size)
        if position == len(free):
            return None
        if free.at(position).range is not None:
            position = self.expandable.best_from(free, position)
        block = free.at(position)
        if settings.max_split_bytes is not None:
            if size < settings.max_split_bytes <= block.size:
                return None
            if size >= settings.max_split_bytes and block.size >= size + settings.max_non_split_rounding_bytes:
                return None
        free.remove(block)
        return block

    def _find_new(self, pool: BlockPool, size: int, stream: str) -> MemoryBlock | None:
        """New memory from the device, after giving back as little as is needed (`malloc`, from garbage on)."""
        if self._collects_garbage:
            self._collect_garbage()
        block = self._allocate_segment(pool, size, stream)
        if block is None and self._release_oversize(pool, size, stream):
            block = self._allocate_segment(pool, size, stream)
        if block is None and not self._captures:
            self.empty_cache()
            self.statistics.num_retries += 1
            block = self._allocate_segment(pool, size, stream)
        return block

    def _allocate_segment(self, pool: BlockPool, size: int, stream: str) -> MemoryBlock | None:
        """A segment, or pages at the end of an expandable one (`alloc_block`)."""
        num_bytes = self.settings.segment_size(size)
        statistics = self.statistics
        if self._allowed_bytes is not None and statistics.reserved.current + num_bytes > self._allowed_bytes:
            return None
        if self.settings.expandable_segments:
            return self.expandable.grow(pool, size, stream)
        address = self.device.allocate(num_bytes)
        if address is None:
            return None
        statistics.segments.add(1)
        statistics.reserved.add(num_bytes)
        statistics.num_device_allocations += 1
        return MemoryBlock(stream, num_bytes, pool, address, None)

    def _hand_out(self, block: MemoryBlock, size: int, num_bytes: int) -> MemoryBlock:
        """Give the low end of a block to the caller, and the rest back if it may be split (`alloc_found_block`)."""
        statistics = self.statistics
        counts = block.range is None
        if self._splits(block, size):
            rest = MemoryBlock(block.stream, block.size - size, block.pool, block.address + size, block.range)
            if counts:
                statistics.inactive_split.add(-size if block.is_split else rest.size)
            rest.place_between(block, block.after)
            block.size = size
            block.pool.add_free(rest)
        elif counts and block.is_split:
            statistics.inactive_split.add(-block.size)
        block.requested = num_bytes
        self.adopt(block)
        return block

    def _splits(self, block: MemoryBlock, size: int) -> bool:
        """Whether what exceeds the request goes back to the pool (`should_split`)."""
        pool = block.pool
        if pool.owner is not None and not pool.owner.splits:
            return False
        rest = block.size - size
        if pool.is_small or self.settings.expandable_segments:
            return rest >= CUDA.min_block_bytes
        return not self.settings.is_oversize(size) and rest > CUDA.small_request_bytes

    # ------------------------------------------------------------------ giving back

    def _make_free(self, block: MemoryBlock) -> None:
        """Merge a block with free neighbours and put it where it can be found (`free_block`)."""
        statistics = self.statistics
        statistics.active.add(-block.size)
        statistics.requested.add(-block.requested)
        merged = merge(block, block.before) + merge(block, block.after)
        block.pool.add_free(block)
        if block.range is None:
            statistics.inactive_split.add((block.size if block.is_split else 0) - merged)

    def _wait_for_uses(self, block: MemoryBlock) -> None:
        """Free it when every stream that used it has come so far (`insert_events`)."""
        for stream in block.uses or ():
            block.waiting += 1
            self._waiting.setdefault(stream, []).append(block)
        block.uses = None

    def _start_waiting(self) -> None:
        """What was freed during a capture waits from its end on (`insert_events_deferred_until_no_capture`).

        Not for streams that used it within the capture: the graph itself orders their work.
        """
        for block in self._after_capture:
            block.uses = (block.uses or set()) - self._capture_uses.pop(block.address, set())
            self._wait_for_uses(block)
            if not block.waiting:
                self._make_free(block)
        self._after_capture.clear()

    def _release_unsplit(self, pool: BlockPool) -> None:
        """Give back every free block that is a whole segment, and every free page (`release_blocks`)."""
        for block in pool.free_blocks():
            if block.range is not None:
                self.expandable.shrink(block)
            elif not block.is_split:
                self._release(block)

    def _release(self, block: MemoryBlock) -> None:
        """Give one segment back to the device (`release_block`)."""
        block.pool.remove_free(block)
        self.device.release(block.address, block.size)
        self.statistics.segments.add(-1)
        self.statistics.reserved.add(-block.size)
        self.statistics.num_device_frees += 1

    def _release_oversize(self, pool: BlockPool, size: int, stream: str) -> bool:
        """Give back one block that may not be split and is large enough, or several from the largest down.

        `release_available_cached_blocks`. Whether they add up to the request.
        """
        least = self.settings.max_split_bytes
        free = pool.free.get(stream)
        if least is None or not free:
            return False
        needed = max(size, least)
        position = free.first_of(needed)
        if position < len(free) and free.at(position).range is None:
            self._release(free.at(position))
            return True
        released = 0
        for block in reversed([free.at(index) for index in range(position)]):
            if released >= needed or block.size < least:
                break
            if block.range is None:
                released += block.size
                self._release(block)
        return released >= needed

    @property
    def _collects_garbage(self) -> bool:
        return self._allowed_bytes is not None and self.settings.garbage_collection_threshold > 0

    def _collect_garbage(self) -> None:
        """Give back large segments that were not used for longer than the average (`garbage_collect_cached_blocks`)."""
        assert self._allowed_bytes is not None
        target = self.statistics.reserved.current - int(
            self.settings.garbage_collection_threshold * self._allowed_bytes
        )
        # An expandable segment of one free block is unsplit too: it counts for the average and is never given back.
        unsplit = [block for block in self.large.free_blocks() if not block.is_split]
        count, total = len(unsplit), sum(self._age(block) for block in unsplit)
        freed, goes_on = 0, True
        while freed < target and goes_on and count > 0:
            average, goes_on = total / count, False
            for block in [each for each in unsplit if each.range is None and self._age(each) >= average]:
                unsplit.remove(block)
                goes_on = True
                freed += block.size
                total -= self._age(block)
                count -= 1
                self._release(block)

    def _age(self, block: MemoryBlock) -> int:
        return block.pool.num_searches - block.age
