"""Blocks of device memory in their segments, and the pools in which free ones wait."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator


class MemoryBlock:
    """A piece of a segment: in use, free, or addresses without memory in an expandable segment.

    `before` and `after` are its neighbours in the segment. `uses` are other streams that work on it, `waiting` counts
    the streams that it still waits for after its owner gave it back, `age` the pool's searches when it became free.
    """

    __slots__ = (
        "address",
        "after",
        "age",
        "before",
        "is_allocated",
        "is_mapped",
        "pool",
        "range",
        "requested",
        "size",
        "stream",
        "uses",
        "waiting",
    )

    def __init__(self, stream: str, size: int, pool: BlockPool, address: int, range_: AddressRange | None) -> None:
        self.stream = stream
        self.size = size
        self.pool = pool
        self.address = address
        self.range = range_
        self.requested = 0
        self.is_allocated = False
        self.is_mapped = True
        self.before: MemoryBlock | None = None
        self.after: MemoryBlock | None = None
        self.uses: set[str] | None = None
        self.waiting = 0
        self.age = 0

    @property
    def is_split(self) -> bool:
        """Whether it shares its segment with another block."""
        return self.before is not None or self.after is not None

    @property
    def is_free(self) -> bool:
        """Whether nobody holds it, no stream still reads it: free memory, or addresses without memory."""
        return not (self.is_allocated or self.waiting or self.uses)

    def place_between(self, before: MemoryBlock | None, after: MemoryBlock | None) -> None:
        """Take a place in the segment."""
        self.before, self.after = before, after
        if before is not None:
            before.after = self
        if after is not None:
            after.before = self


class AddressRange:
    """Addresses of one expandable segment, in pages.

    Attributes:
        address: where it begins.
        page_bytes: size of a page.
        size: bytes of addresses, a multiple of the page.
    """

    __slots__ = ("address", "page_bytes", "size")

    def __init__(self, address: int, page_bytes: int, size: int) -> None:
        self.address = address
        self.page_bytes = page_bytes
        self.size = size

    def pages_around(self, address: int, num_bytes: int) -> int:
        """Bytes of the pages that hold `num_bytes` from the start of a page on."""
        assert (address - self.address) % self.page_bytes == 0, "unmapped addresses begin with a page"
        return -(-num_bytes // self.page_bytes) * self.page_bytes

    def pages_within(self, address: int, num_bytes: int) -> tuple[int, int]:
        """Address and bytes of the whole pages inside a stretch."""
        begin = -(-(address - self.address) // self.page_bytes) * self.page_bytes
        end = (address + num_bytes - self.address) // self.page_bytes * self.page_bytes
        return self.address + begin, max(end - begin, 0)


class FreeBlocks:
    """The free blocks of one stream in one pool: smallest first, the lowest address first among equals."""

    __slots__ = ("blocks", "keys")

    def __init__(self) -> None:
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[int, MemoryBlock] = {}

    def add(self, block: MemoryBlock) -> None:
        """Put a block in."""
        insort(self.keys, (block.size, block.address))
        self.blocks[block.address] = block

    def remove(self, block: MemoryBlock) -> None:
        """Take a block out."""
        del self.keys[bisect_left(self.keys, (block.size, block.address))]
        del self.blocks[block.address]

    def first_of(self, size: int) -> int:
        """Position of the first block of at least `size` bytes; the number of blocks where there is none."""
        return bisect_left(self.keys, (size, 0))

    def at(self, position: int) -> MemoryBlock:
        """The block at a position."""
        return self.blocks[self.keys[position][1]]

    def __len__(self) -> int:
        return len(self.keys)

    def __iter__(self) -> Iterator[MemoryBlock]:
        return iter([self.blocks[address] for _, address in self.keys])


class PrivatePool:
    """A pool of its own, for a CUDA graph or a `torch.cuda.MemPool`.

    Attributes:
        small, large: its two halves.
        splits: whether its blocks may be split.
        num_users: graphs and pools that hold it; without any, its unused segments may go back to the device.
    """

    __slots__ = ("large", "num_users", "small", "splits")

    def __init__(self, *, splits: bool) -> None:
        self.small = BlockPool(is_small=True, owner=self)
        self.large = BlockPool(is_small=False, owner=self)
        self.splits = splits
        self.num_users = 1


class BlockPool:
    """The small or the large half of a pool.

    Attributes:
        is_small: which half.
        owner: the private pool it is part of, `None` for the default pool.
        free: free blocks by stream.
        unmapped: addresses without memory by stream, lowest first.
        num_searches: how often a free block was looked for, the clock of the garbage collector.
    """

    __slots__ = ("free", "is_small", "num_searches", "owner", "unmapped")

    def __init__(self, *, is_small: bool, owner: PrivatePool | None = None) -> None:
        self.is_small = is_small
        self.owner = owner
        self.free: dict[str, FreeBlocks] = {}
        self.unmapped: dict[str, list[MemoryBlock]] = {}
        self.num_searches = 0

    def add_free(self, block: MemoryBlock) -> None:
        """Put a free block where it can be found; its age begins."""
        block.age = self.num_searches
        free = self.free.get(block.stream)
        if free is None:
            free = self.free[block.stream] = FreeBlocks()
        free.add(block)

    def remove_free(self, block: MemoryBlock) -> None:
        """Take a free block out."""
        self.free[block.stream].remove(block)

    def add_unmapped(self, block: MemoryBlock) -> None:
        """Remember addresses without memory."""
        insort(self.unmapped.setdefault(block.stream, []), block, key=lambda each: each.address)

    def remove_unmapped(self, block: MemoryBlock) -> None:
        """Forget them."""
        self.unmapped[block.stream].remove(block)

    def free_blocks(self) -> list[MemoryBlock]:
        """The free blocks of all streams."""
        return [block for free in self.free.values() for block in free]


def merge(block: MemoryBlock, other: MemoryBlock | None) -> int:
    """Join a free neighbour to a block; the bytes it had, 0 where it cannot be joined (`try_merge_blocks`)."""
    if other is None or not other.is_free or other.is_mapped != block.is_mapped:
        return 0
    if other.is_mapped:
        other.pool.remove_free(other)
    else:
        other.pool.remove_unmapped(other)
    if block.before is other:
        block.address = other.address
        block.place_between(other.before, block.after)
    else:
        block.place_between(block.before, other.after)
    block.size += other.size
    return other.size
