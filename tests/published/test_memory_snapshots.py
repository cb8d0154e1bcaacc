"""Memory snapshots that people recorded on GPUs, replayed on the model of the caching allocator.

The files are not ours to publish; they lie outside the repository, and the tests skip where they are not. Sources:
Wedsonlin/assignment2-systems (results/), kkaitlyn111/cs336-a2-systems (memory_files/) and shreyansh26 (profile_grad,
profile_no_grad) on GitHub.
"""

from pathlib import Path

import pytest

from torchledger.memory import AllocatorSettings, read_snapshot, replay, reserve

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "snapshots"
MIB = 1 << 20

# file: allocations, new segments, and what was allocated at the start, at the peak and at the end, reserved at the end,
# in MiB (the last four are also rows M001 to M014 of the published measurements).
RECORDED = {
    "kk_memory_ctx128_fullstep_": (6770, 782, 13157.889, 52527.428, 52331.762, 58280),
    "shrey_grad": (12, 7, 0, 4230.661, 3084.926, 4234),
    "shrey_nograd": (12, 7, 0, 4039.926, 3084.926, 4234),
    "wed_medium_128_training": (6526, 0, 4864.902, 6701.094, 6501.094, 6900),
    "wed_medium_1024_training": (7591, 0, 4865.449, 23092.192, 6556.016, 24012),
    "wed_medium_256_inference": (1280, 0, 1624.426, 1712.553, 1624.426, 1778),
}


@pytest.fixture(params=RECORDED)
def recorded(request):
    """Name, record and replay of one file."""
    path = FOLDER / f"{request.param}.pickle"
    if not path.exists():
        pytest.skip(f"the public snapshots are not in {FOLDER.parent.parent.name}/data/snapshots beside the repository")
    [record] = read_snapshot(path)
    return request.param, record, replay(record)


def test_every_block_is_put_where_the_gpu_had_it(recorded):
    """22,191 allocations at their recorded addresses and 796 new segments in their sizes, over the six files."""
    name, record, seen = recorded
    num_allocations, num_segments, *_ = RECORDED[name]
    assert seen.mismatches == ()
    assert seen.num_same_address == seen.num_allocations == num_allocations
    assert seen.num_same_size == seen.num_segments == num_segments
    assert seen.num_uncertain == 0
    assert seen.allocated_curve[-1] == record.allocated_bytes
    assert seen.reserved_curve[-1] == record.reserved_bytes


def test_the_amounts_are_the_published_ones(recorded):
    """Allocated at start, peak and end, and reserved."""
    name, _, seen = recorded
    _, _, start, peak, end, reserved = RECORDED[name]
    allocated = seen.allocated_curve
    assert [round(n / MIB, 3) for n in (allocated[0], max(allocated), allocated[-1])] == [start, peak, end]
    assert max(seen.reserved_curve) == reserved * MIB


def test_other_options_can_be_asked_of_a_record(recorded):
    """Expandable segments hold the same blocks without rests, in at most one page more than segments."""
    _, _, seen = recorded
    asked = reserve(seen.timeline, AllocatorSettings(expandable_segments=True))
    assert asked.fits
    assert asked.peak.allocated_bytes <= max(seen.allocated_curve)
    assert asked.peak.reserved_bytes <= max(seen.reserved_curve) + 20 * MIB
