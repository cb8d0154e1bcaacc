from hypothesis import given
from hypothesis import strategies as st

from torchledger.memory.pool import AddressRange, BlockPool, FreeBlocks, MemoryBlock, merge


def block(pool, size, address):
    return MemoryBlock("", size, pool, address, None)


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 50)), unique_by=lambda each: each[1]), st.integers(1, 6))
def test_free_blocks_are_ordered_by_size_then_address(pairs, size):
    """`BlockComparatorSize`: lower_bound(size) is the smallest block that is large enough, the lowest among equals."""
    free, pool = FreeBlocks(), BlockPool(is_small=True)
    for num_bytes, address in pairs:
        free.add(block(pool, num_bytes, address))
    fitting = sorted(pair for pair in pairs if pair[0] >= size)
    position = free.first_of(size)
    assert [(each.size, each.address) for each in list(free)[position:]] == fitting
    for each in list(free):
        free.remove(each)
    assert len(free) == 0


def test_a_block_merges_with_free_neighbours_alone():
    """`try_merge_blocks`: not with held ones, not with those another stream reads, not mapped with unmapped."""
    pool = BlockPool(is_small=True)
    low, middle, high = block(pool, 10, 0), block(pool, 20, 10), block(pool, 30, 30)
    middle.place_between(low, high)
    pool.add_free(low)
    high.is_allocated = True
    assert merge(middle, low) == 10
    assert merge(middle, high) == 0
    assert (middle.address, middle.size, middle.before, middle.after) == (0, 30, None, high)
    high.is_allocated, high.uses = False, {"side"}
    assert merge(middle, high) == 0
    high.uses, high.is_mapped = None, False
    assert merge(middle, high) == 0
    assert list(pool.free[""]) == []


def test_pages_of_a_range():
    """A request takes the pages that hold it (`segmentRight`); a free block gives back the pages inside it."""
    pages = AddressRange(address=1000, page_bytes=100, size=10_000)
    assert pages.pages_around(1200, 101) == 200
    assert pages.pages_within(1050, 300) == (1100, 200)
    assert pages.pages_within(1150, 100) == (1200, 0)
