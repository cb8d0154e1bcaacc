"""Expandable segments, also where the device ends in the middle of a request: `try_allocate_expandable_block`."""

import pytest

from torchledger.memory import AllocatorSettings, CachingAllocator, DeviceOutOfMemory
from torchledger.memory.segment import segments_of

MIB = 1 << 20


def allocator(text="", capacity_bytes=None):
    return CachingAllocator(AllocatorSettings.parse(text), capacity_bytes)


def held(a):
    s = a.statistics
    return s.allocated.current, s.active.current, s.reserved.current


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


def test_an_expandable_segment_grows_by_pages_and_has_no_slack():
    """`try_allocate_expandable_block` maps pages of 20 MiB; `should_split` then splits at 512 bytes."""
    a = allocator("expandable_segments:True")
    first = a.malloc(15 * MIB)
    assert held(a) == (15 * MIB, 15 * MIB, 20 * MIB)
    second = a.malloc(10 * MIB)
    assert second == first + 15 * MIB, "the rest of 5 MiB and 5 MiB of the next page"
    assert held(a) == (25 * MIB, 25 * MIB, 40 * MIB)
    a.malloc(14 * MIB + 512)
    assert held(a) == (39 * MIB + 512, 39 * MIB + 512, 40 * MIB)


def test_the_small_pool_has_pages_of_two_mebibytes_and_addresses_of_its_own():
    a = allocator("expandable_segments:True")
    small = [a.malloc(MIB) for _ in range(5)]
    assert [address - small[0] for address in small] == [0, MIB, 2 * MIB, 3 * MIB, 4 * MIB]
    assert held(a)[2] == 6 * MIB
    a.malloc(2 * MIB)
    assert held(a)[2] == 6 * MIB + 20 * MIB


def test_each_stream_has_a_range_of_its_own():
    a = allocator("expandable_segments:True")
    a.malloc(2 * MIB, "main")
    a.malloc(2 * MIB, "side")
    assert held(a)[2] == 2 * 20 * MIB
    assert len(segments_of(a)) == 2


def test_the_best_fit_counts_with_what_a_block_can_grow_to():
    """`get_free_block`: the free end of a range counts with all addresses behind it, so a hole is taken first."""
    a = allocator("expandable_segments:True")
    blocks = [a.malloc(8 * MIB) for _ in range(4)]
    assert held(a)[2] == 40 * MIB
    a.free(blocks[0])
    assert a.malloc(8 * MIB) == blocks[0], "both 8 MiB blocks fit; the one at the end could grow"


def test_free_pages_go_back_although_the_range_is_in_use():
    """`unmap_block`: whole pages inside a free block; what is left around them stays."""
    a = allocator("expandable_segments:True")
    low, middle, high = a.malloc(15 * MIB), a.malloc(50 * MIB), a.malloc(15 * MIB)
    assert high - low == 65 * MIB
    assert held(a)[2] == 80 * MIB
    a.free(middle)
    a.empty_cache()
    assert held(a)[2] == 80 * MIB - 40 * MIB, "pages 20 to 40 and 40 to 60; 15 to 20 and 60 to 65 stay"
    again = a.malloc(50 * MIB)
    assert again == middle, "the lowest addresses that have room, free or not mapped"
    assert held(a)[2] == 80 * MIB


def test_an_empty_range_is_given_up():
    """`release_expandable_segment`."""
    a = allocator("expandable_segments:True")
    a.free(a.malloc(100 * MIB))
    a.empty_cache()
    assert held(a) == (0, 0, 0)
    assert not a.large.unmapped[""]


def test_pages_of_one_stream_make_room_for_another_when_the_device_is_full():
    a = allocator("expandable_segments:True", capacity_bytes=100 * MIB)
    a.free(a.malloc(80 * MIB, "main"))
    a.malloc(60 * MIB, "side")
    assert held(a)[2] == 60 * MIB
    assert a.statistics.num_retries == 1


def test_a_segment_needs_one_stretch_where_pages_need_none():
    """What expandable segments are for: three holes of 20 MiB hold no 60 MiB, three free pages do."""
    for text, fits in (("", False), ("expandable_segments:True", True)):
        a = allocator(text, capacity_bytes=120 * MIB)
        blocks = [a.malloc(20 * MIB) for _ in range(6)]
        for block in blocks[:3]:
            a.free(block)
        if fits:
            assert a.malloc(60 * MIB) == blocks[0]
        else:
            a.malloc(60 * MIB)
            assert a.statistics.num_retries == 1, "segments of 20 MiB must go back first"
