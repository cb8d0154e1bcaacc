"""Where an allocator gets its memory from: a device of so many bytes, or a record of what a real one gave."""

from __future__ import annotations

import random
from typing import Protocol

# cudaMalloc gives multiples of the driver's page, and segments are multiples of 2 MiB anyway. Only the order of
# addresses matters to the allocator, so the first one may be any.
_FIRST_ADDRESS = 1 << 33
_ALIGNMENT = 1 << 21
# With a seed each range lies in a stretch of its own, drawn among so many, each larger than any device.
_STRETCHES, _STRETCH_BYTES = 1 << 16, 1 << 48


class DeviceMemory(Protocol):
    """What the caching allocator asks of a device."""

    def allocate(self, num_bytes: int) -> int | None:
        """Address of a new segment (`cudaMalloc`), `None` where the device has no such room."""

    def release(self, address: int, num_bytes: int) -> None:
        """Give a segment back (`cudaFree`)."""

    def reserve_addresses(self, num_bytes: int) -> int:
        """Addresses without memory behind them (`cuMemAddressReserve`)."""

    def map_pages(self, address: int, num_bytes: int) -> bool:
        """Put memory behind addresses (`cuMemMap`); False where the device has not enough."""

    def unmap_pages(self, address: int, num_bytes: int) -> None:
        """Take it away again (`cuMemUnmap`)."""


class PlainDevice:
    """A device that gives new addresses in ascending order until its bytes are spent.

    Memory of a real device may itself be fragmented; with 2 MiB pages behind a flat address space it hardly is. Which
    addresses a real driver gives is its own affair, and the lowest of equal free blocks is taken first: a seed draws
    another order, which shows how much hangs on it.

    Args:
        capacity_bytes: bytes it can give, `None` for no end.
        seed: draws the order of addresses; `None` is ascending.
    """

    def __init__(self, capacity_bytes: int | None = None, *, seed: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._draw = None if seed is None else random.Random(seed)
        self.used_bytes = 0
        self._next_address = _FIRST_ADDRESS

    @property
    def free_bytes(self) -> int | None:
        """Bytes it can still give."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.used_bytes

    def allocate(self, num_bytes: int) -> int | None:
        """Address of a new segment, `None` where there is no such room."""
        return self.reserve_addresses(num_bytes) if self.map_pages(0, num_bytes) else None

    def release(self, address: int, num_bytes: int) -> None:
        """Give a segment back."""
        self.unmap_pages(address, num_bytes)

    def reserve_addresses(self, num_bytes: int) -> int:
        """Addresses that nothing else has or will have."""
        address = self._next_address
        self._next_address += -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
        return address if self._draw is None else address + self._draw.randrange(_STRETCHES) * _STRETCH_BYTES

    def map_pages(self, address: int, num_bytes: int) -> bool:  # noqa: ARG002 - the protocol's
        """Spend bytes, if there are so many."""
        if self.capacity_bytes is not None and self.used_bytes + num_bytes > self.capacity_bytes:
            return False
        self.used_bytes += num_bytes
        return True

    def unmap_pages(self, address: int, num_bytes: int) -> None:  # noqa: ARG002 - the protocol's
        """Get bytes back."""
        self.used_bytes -= num_bytes
