from torchledger.memory import AllocatorSettings, CachingAllocator
from torchledger.memory.segment import segments_of

MIB = 1 << 20


def test_a_segment_tells_its_blocks():
    a = CachingAllocator()
    first, second = a.malloc(4 * MIB - 5), a.malloc(6 * MIB)
    a.record_stream(second, "side")
    a.free(second)
    [segment] = segments_of(a)
    assert (segment.address, segment.num_bytes, segment.is_small) == (first, 20 * MIB, False)
    assert [(b.num_bytes, b.requested_bytes, b.state) for b in segment.blocks] == [
        (4 * MIB, 4 * MIB - 5, "allocated"),
        (6 * MIB, 6 * MIB, "waiting"),
        (10 * MIB, 0, "free"),
    ]
    assert segment.allocated_bytes == 4 * MIB


def test_mapped_stretches_of_a_range_are_segments_of_their_own():
    """`snapshot`: for expandable segments one for each contiguous mapped range."""
    a = CachingAllocator(AllocatorSettings(expandable_segments=True))
    blocks = [a.malloc(20 * MIB) for _ in range(3)]
    a.free(blocks[1])
    a.empty_cache()
    assert [(s.address, s.num_bytes, s.is_expandable) for s in segments_of(a)] == [
        (blocks[0], 20 * MIB, True),
        (blocks[2], 20 * MIB, True),
    ]
