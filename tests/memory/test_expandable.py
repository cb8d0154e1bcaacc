"""Expandable segments where the device ends in the middle of a request: `try_allocate_expandable_block`."""

import pytest

from torchledger.memory import AllocatorSettings, CachingAllocator, DeviceOutOfMemory

MIB = 1 << 20


def test_a_range_has_room_for_nine_eighths_of_the_device():
    """`ExpandableSegment`: total memory plus an eighth, in whole pages."""
    a = CachingAllocator(AllocatorSettings(expandable_segments=True), 100 * MIB)
    assert a.expandable.room_bytes(is_small=False) == 120 * MIB, "112.5 MiB in pages of 20 MiB"
    assert a.expandable.room_bytes(is_small=True) == 114 * MIB, "112.5 MiB in pages of 2 MiB"


def test_a_request_beyond_the_device_leaves_everything_as_it_was():
    a = CachingAllocator(AllocatorSettings(expandable_segments=True), 100 * MIB)
    first = a.malloc(30 * MIB)
    with pytest.raises(DeviceOutOfMemory):
        a.malloc(75 * MIB)
    assert a.statistics.reserved.current == 40 * MIB
    assert a.malloc(70 * MIB) == first + 30 * MIB
    assert a.statistics.reserved.current == 100 * MIB


def test_holes_are_filled_from_the_lowest_address_on():
    """`find_expandable_block`: the lowest unmapped addresses, with the free block before them."""
    a = CachingAllocator(AllocatorSettings(expandable_segments=True))
    blocks = [a.malloc(20 * MIB) for _ in range(5)]
    for block in (blocks[1], blocks[3]):
        a.free(block)
    a.empty_cache()
    assert a.statistics.reserved.current == 60 * MIB
    assert a.malloc(25 * MIB) == blocks[4] + 20 * MIB
    assert a.malloc(15 * MIB) == blocks[4] + 45 * MIB
    assert a.malloc(20 * MIB) == blocks[1]
    assert a.statistics.reserved.current == 60 * MIB + 40 * MIB + 20 * MIB
