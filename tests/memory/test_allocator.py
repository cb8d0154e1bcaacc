"""The allocator's rules, case by case, each against DeviceCachingAllocator in c10/cuda/CUDACachingAllocator.cpp."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.memory import AllocatorSettings, CachingAllocator, DeviceOutOfMemory
from torchledger.memory.segment import segments_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def allocator(text="", capacity_bytes=None, **options):
    return CachingAllocator(AllocatorSettings.parse(text), capacity_bytes, **options)


def held(a):
    s = a.statistics
    return s.allocated.current, s.active.current, s.reserved.current


def test_small_and_large_requests_live_in_different_segments():
    """`get_pool`: up to kSmallSize = 1 MiB small, above large."""
    a = allocator()
    a.malloc(MIB)
    a.malloc(MIB + 1)
    assert held(a)[2] == 2 * MIB + 20 * MIB


def test_small_segments_are_packed_without_slack():
    """`should_split`: in the small pool any remainder of at least 512 bytes is split off."""
    a = allocator()
    first = a.malloc(1)
    second = a.malloc(MIB)
    assert second - first == 512
    assert held(a) == (512 + MIB, 512 + MIB, 2 * MIB)


def test_a_large_block_keeps_a_rest_of_up_to_one_mebibyte():
    """`should_split`: in the large pool the remainder must exceed kSmallSize; slack counts as allocated."""
    a = allocator()
    a.malloc(10_000 * 1024 * 4)
    assert 10_000 * 1024 * 4 == 40_960_000
    assert a.statistics.requested.current == 40_960_000
    assert held(a) == (40 * MIB, 40 * MIB, 40 * MIB)


def test_a_rest_above_one_mebibyte_is_split_off():
    a = allocator()
    first = a.malloc(18 * MIB + 512)
    assert held(a)[2] == 20 * MIB
    second = a.malloc(MIB + 512)
    assert second == first + 18 * MIB + 512
    assert held(a)[2] == 20 * MIB, "20 MiB - 18 MiB - 512 = 2 MiB - 512, more than 1 MiB"
    assert a.statistics.allocated.current == 20 * MIB, "the second keeps its rest of 1 MiB - 1024"


def test_the_best_fit_is_the_smallest_then_the_lowest():
    """`get_free_block`: lower_bound in (stream, size, address)."""
    a = allocator()
    blocks = [a.malloc(size) for size in (40 * MIB, 20 * MIB, 30 * MIB, 20 * MIB)]
    for block in blocks:
        a.free(block)
    assert a.malloc(15 * MIB) == blocks[1]
    assert a.malloc(20 * MIB) == blocks[3]
    assert a.malloc(20 * MIB) == blocks[2]


def test_freed_neighbours_merge():
    """`free_block`: with the block before and the block after in the same segment."""
    a = allocator()
    low, middle, high = (a.malloc(4 * MIB) for _ in range(3))
    a.free(low)
    a.free(high)
    assert a.statistics.inactive_split.current == 20 * MIB - 4 * MIB
    a.free(middle)
    assert a.statistics.inactive_split.current == 0, "a whole segment can go back to the device"
    assert a.malloc(19 * MIB) == low
    assert held(a)[2] == 20 * MIB


def test_streams_never_share_blocks():
    """`get_free_block`: a free block serves its own stream alone."""
    a = allocator()
    address = a.malloc(4 * MIB, "main")
    a.free(address)
    assert a.malloc(4 * MIB, "side") != address
    assert a.malloc(4 * MIB, "main") == address
    assert held(a)[2] == 2 * 20 * MIB


def test_a_block_used_by_another_stream_stays_active_until_that_is_done():
    """`free` then `process_events`: allocated falls at once, active when the event has come."""
    a = allocator()
    address = a.malloc(4 * MIB, "main")
    a.record_stream(address, "side")
    a.record_stream(address, "main")
    a.free(address)
    assert held(a) == (0, 4 * MIB, 20 * MIB)
    assert a.malloc(4 * MIB, "main") != address
    a.finish_streams(["main"])
    assert held(a)[1] == 2 * 4 * MIB
    a.finish_streams(["side"])
    assert held(a)[1] == 4 * MIB
    assert a.malloc(4 * MIB, "main") == address


def test_two_other_streams_must_both_be_done():
    a = allocator()
    address = a.malloc(MIB)
    a.record_stream(address, "one")
    a.record_stream(address, "two")
    a.free(address)
    a.finish_streams(["one"])
    assert a.statistics.active.current == MIB
    a.finish_streams()
    assert a.statistics.active.current == 0


def test_emptying_the_cache_gives_whole_segments_back():
    """`release_blocks`: only a free block that is its whole segment."""
    a = allocator()
    whole, part, kept = a.malloc(12 * MIB), a.malloc(4 * MIB), a.malloc(4 * MIB)
    a.free(whole)
    a.free(part)
    a.empty_cache()
    assert held(a)[2] == 20 * MIB
    a.free(kept)
    a.empty_cache()
    assert (held(a)[2], a.statistics.segments.current) == (0, 0)
    assert a.statistics.num_device_frees == 2


def test_a_full_device_first_gets_everything_unused_back():
    """`malloc`: alloc_block, release_cached_blocks, alloc_block once more, counted as a retry."""
    a = allocator(capacity_bytes=40 * MIB)
    a.free(a.malloc(30 * MIB))
    a.malloc(32 * MIB)
    assert held(a)[2] == 32 * MIB
    assert a.statistics.num_retries == 1


def test_what_another_stream_reads_is_waited_for_before_giving_up():
    """`release_cached_blocks`: synchronize_and_free_events comes first."""
    a = allocator(capacity_bytes=40 * MIB)
    address = a.malloc(30 * MIB, "main")
    a.record_stream(address, "side")
    a.free(address)
    a.malloc(32 * MIB, "main")
    assert held(a) == (32 * MIB, 32 * MIB, 32 * MIB)


def test_a_request_that_nothing_helps_fails_and_says_so():
    a = allocator(capacity_bytes=40 * MIB)
    a.malloc(4 * MIB)
    with pytest.raises(DeviceOutOfMemory, match="22020097 bytes need 23068672 more from the device") as error:
        a.malloc(21 * MIB + 1)
    assert (error.value.requested_bytes, error.value.segment_bytes) == (21 * MIB + 1, 22 * MIB)
    assert a.malloc(20 * MIB), "afterwards the allocator goes on"


def test_what_stands_outside_the_allocator_is_not_to_be_had():
    a = allocator(capacity_bytes=40 * MIB, outside_bytes=21 * MIB)
    with pytest.raises(DeviceOutOfMemory):
        a.malloc(2 * MIB)
    a.malloc(18 * MIB)


def test_a_memory_fraction_bounds_what_is_reserved():
    """`alloc_block`: total_allocated_memory + size > allowed_memory_maximum is out of memory."""
    a = allocator("per_process_memory_fraction:0.5", capacity_bytes=80 * MIB)
    a.malloc(20 * MIB)
    a.malloc(20 * MIB)
    with pytest.raises(DeviceOutOfMemory):
        a.malloc(512)


# ---------------------------------------------------------------- max_split_size_mb


def test_an_oversize_block_is_never_split():
    """`should_split`: size < max_split_size."""
    a = allocator("max_split_size_mb:20")
    a.free(a.malloc(40 * MIB))
    a.malloc(21 * MIB)
    assert held(a) == (40 * MIB, 40 * MIB, 40 * MIB), "19 MiB more than asked is within the rounding of 20 MiB"


def test_an_oversize_block_serves_no_small_request():
    """`get_free_block`: p.size() < max_split_size and block >= max_split_size."""
    a = allocator("max_split_size_mb:20")
    a.free(a.malloc(40 * MIB))
    a.malloc(12 * MIB)
    assert held(a)[2] == 40 * MIB + 12 * MIB


def test_an_oversize_block_serves_requests_up_to_a_bound():
    """`get_free_block`: block >= p.size() + max_non_split_rounding is refused."""
    a = allocator("max_split_size_mb:20,max_non_split_rounding_mb:24")
    a.free(a.malloc(44 * MIB))
    a.free(a.malloc(21 * MIB))
    assert held(a)[2] == 44 * MIB, "23 MiB more than asked"
    a.malloc(20 * MIB)
    assert held(a)[2] == 44 * MIB + 20 * MIB, "24 MiB more than asked"


def test_a_full_device_first_gets_one_oversize_block_that_is_large_enough():
    """`release_available_cached_blocks`: the best fit alone, no retry of everything."""
    a = allocator("max_split_size_mb:20", capacity_bytes=200 * MIB)
    blocks = [a.malloc(size * MIB) for size in (60, 90, 24)]
    for block in blocks:
        a.free(block)
    a.malloc(30 * MIB)
    assert held(a)[2] == (90 + 24 + 30) * MIB, "the 60 MiB went"
    assert a.statistics.num_retries == 0


def test_or_several_from_the_largest_down_until_they_add_up():
    a = allocator("max_split_size_mb:20", capacity_bytes=80 * MIB)
    for block in [a.malloc(24 * MIB), a.malloc(22 * MIB), a.malloc(20 * MIB)]:
        a.free(block)
    a.malloc(46 * MIB)
    assert held(a)[2] == (20 + 46) * MIB, "24 + 22 are enough"
    assert a.statistics.num_retries == 0


def test_where_they_do_not_add_up_everything_unused_goes():
    a = allocator("max_split_size_mb:20", capacity_bytes=80 * MIB)
    for block in [a.malloc(24 * MIB), a.malloc(12 * MIB)]:
        a.free(block)
    a.malloc(60 * MIB)
    assert held(a)[2] == 60 * MIB
    assert a.statistics.num_retries == 1


# ---------------------------------------------------------------- garbage_collection_threshold


def test_old_unused_segments_go_back_before_a_new_one_is_asked_for():
    """`garbage_collect_cached_blocks`: above threshold x allowed, those at least as old as the average."""
    a = allocator("garbage_collection_threshold:0.5,per_process_memory_fraction:0.8", capacity_bytes=100 * MIB)
    old, young = a.malloc(20 * MIB), a.malloc(24 * MIB)
    a.free(old)
    for _ in range(10):
        a.free(young)
        assert a.malloc(24 * MIB) == young
    a.free(young)
    assert held(a)[2] == (20 + 24) * MIB
    a.malloc(30 * MIB)
    assert held(a)[2] == (24 + 30) * MIB, "44 exceeds 0.5 x 80; ages 11 and 1, average 6: the old one goes"
    assert a.statistics.num_retries == 0


def test_below_the_threshold_nothing_is_collected():
    a = allocator("garbage_collection_threshold:0.9,per_process_memory_fraction:0.9", capacity_bytes=100 * MIB)
    a.free(a.malloc(20 * MIB))
    a.malloc(30 * MIB)
    assert held(a)[2] == 50 * MIB


def test_without_a_memory_fraction_the_threshold_does_nothing():
    """`malloc`: only where allowed_memory_maximum has a value."""
    a = allocator("garbage_collection_threshold:0.1", capacity_bytes=100 * MIB)
    a.free(a.malloc(20 * MIB))
    a.malloc(30 * MIB)
    assert held(a)[2] == 50 * MIB


# ---------------------------------------------------------------- private pools


def test_a_graph_keeps_its_memory_from_everyone_else():
    """`get_pool`: the capture that began last on that stream; Note [Interaction with CUDA graph capture]."""
    a = allocator()
    pool = a.add_private_pool()
    a.begin_capture(pool, ["graph"])
    inside, outside = a.malloc(4 * MIB, "graph"), a.malloc(4 * MIB, "")
    a.free(inside)
    a.end_capture(pool)
    assert held(a)[2] == 40 * MIB
    assert a.malloc(4 * MIB, "graph") not in (inside, outside)
    a.empty_cache()
    assert held(a)[2] == 60 * MIB, "the graph may be replayed"
    a.release_private_pool(pool)
    a.empty_cache()
    assert held(a)[2] == 40 * MIB


def test_during_a_capture_nothing_is_given_back_and_nothing_finishes():
    """`malloc`: release_cached_blocks only where captures_underway is empty."""
    a = allocator(capacity_bytes=40 * MIB)
    a.free(a.malloc(30 * MIB))
    pool = a.add_private_pool()
    a.begin_capture(pool)
    with pytest.raises(DeviceOutOfMemory):
        a.malloc(32 * MIB)
    a.end_capture(pool)
    a.malloc(32 * MIB)


def test_blocks_freed_during_a_capture_wait_for_streams_from_before_it_alone():
    """`remove_cudagraph_stream_uses`: the graph orders the streams that used it within the capture."""
    a = allocator()
    pool = a.add_private_pool()
    before, within = a.malloc(MIB), a.malloc(MIB)
    a.record_stream(before, "side")
    a.begin_capture(pool)
    a.record_stream(within, "side")
    a.free(before)
    a.free(within)
    a.finish_streams()
    assert held(a)[1] == 2 * MIB
    a.end_capture(pool)
    a.finish_streams([])
    assert held(a)[1] == MIB
    a.finish_streams(["side"])
    assert held(a)[1] == 0


def test_a_pool_may_forbid_splits():
    """`should_split`: no_split_pools."""
    a = allocator()
    pool = a.add_private_pool(splits=False)
    a.begin_capture(pool)
    a.malloc(4 * MIB)
    a.end_capture(pool)
    assert held(a)[0] == 20 * MIB


# ---------------------------------------------------------------- whatever happens


@st.composite
def programs(draw):
    """Options and a list of allocations (positive) and of frees (which of the live ones)."""
    text = draw(st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:4"]))
    sizes = st.one_of(st.integers(1, 3000), st.integers(MIB - 600, MIB + 600), st.integers(2 * MIB, 60 * MIB))
    return text, draw(st.lists(st.tuples(st.booleans(), sizes, st.sampled_from(["", "side"])), max_size=60))


@given(programs())
def test_blocks_never_overlap_and_the_statistics_are_the_sums_of_the_segments(program):
    text, steps = program
    a = allocator(text)
    live = {}
    for allocates, number, stream in steps:
        if allocates or not live:
            live[a.malloc(number, stream)] = number
        else:
            address = sorted(live)[number % len(live)]
            del live[address]
            a.free(address)
    segments = segments_of(a)
    pieces = [piece for segment in segments for piece in segment.blocks]
    assert all(low.address + low.num_bytes <= high.address for low, high in pairwise(pieces))
    assert {p.address: p.requested_bytes for p in pieces if p.state == "allocated"} == live
    statistics = a.statistics
    assert statistics.reserved.current == sum(segment.num_bytes for segment in segments)
    assert statistics.allocated.current == sum(segment.allocated_bytes for segment in segments)
    assert statistics.requested.current == sum(live.values())
    if "expandable" not in text:
        split = [s for s in segments if len(s.blocks) > 1]
        assert statistics.inactive_split.current == sum(
            p.num_bytes for s in split for p in s.blocks if p.state == "free"
        )
        assert statistics.segments.current == len(segments)
    a.empty_cache()
    assert statistics.reserved.current >= statistics.allocated.current
    for address in live:
        a.free(address)
    a.empty_cache()
    assert statistics.reserved.current == statistics.allocated.current == statistics.inactive_split.current == 0
