import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchledger.memory import SnapshotError, read_snapshot
from torchledger.memory.rewind import rewind
from torchledger.memory.segment import segments_of

MIB = 1 << 20


def start_of(a, folder):
    [record] = read_snapshot(a.dump(folder / "s.pickle"))
    return rewind(record)


def layout(segments):
    return [(s.address, s.num_bytes, [(b.address, b.num_bytes) for b in s.blocks]) for s in segments]


def held_layout(a):
    return [
        (s.address, s.num_bytes, [(b.address, b.num_bytes) for b in s.blocks if b.state != "free"])
        for s in segments_of(a)
    ]


def test_what_was_held_before_the_record_is_found_again(recorder, tmp_path):
    a = recorder()
    first, second = a.malloc(40_960_000), a.malloc(5 * MIB)
    before = held_layout(a)
    a.is_recording = True
    a.free(first)
    a.malloc(3 * MIB)
    a.free(second)
    assert layout(start_of(a, tmp_path)) == before, "the first block with its rest, although its free tells the request"


def test_a_rest_before_a_free_block_is_found_by_the_allocation_behind_it(recorder, tmp_path):
    """12 MiB in a free stretch of 12.5 keep 0.5; what is freed behind them hides it until it is taken again."""
    a = recorder()
    low, middle, high = a.malloc(12 * MIB + MIB // 2), a.malloc(4 * MIB), a.malloc(4 * MIB)
    del high
    a.free(low)
    kept = a.malloc(12 * MIB)
    a.free(middle)
    before = held_layout(a)
    a.is_recording = True
    a.malloc(3 * MIB)
    a.free(kept)
    assert layout(start_of(a, tmp_path)) == before


def test_segments_that_went_back_are_there_again(recorder, tmp_path):
    a = recorder()
    a.free(a.malloc(30 * MIB))
    a.free(a.malloc(100))
    before = held_layout(a)
    a.is_recording = True
    a.empty_cache()
    start = start_of(a, tmp_path)
    assert layout(start) == before
    assert [segment.is_small for segment in start] == [False, True]


def test_a_block_that_another_stream_reads_is_waiting(recorder, tmp_path):
    a = recorder()
    address = a.malloc(4 * MIB)
    a.record_stream(address, "side")
    a.free(address)
    a.is_recording = True
    a.finish_streams()
    [segment] = start_of(a, tmp_path)
    assert [block.is_waiting for block in segment.blocks] == [True]


@pytest.mark.parametrize("lost", ["alloc", "segment_alloc", "free_completed"])
def test_a_history_with_parts_missing_is_told(recorder, tmp_path, lost):
    a = recorder()
    a.is_recording = True
    for size in (4 * MIB, 4 * MIB, 4 * MIB):
        a.free(a.malloc(size))
    index = max(number for number, event in enumerate(a.events) if event["action"] == lost)
    del a.events[index]
    if lost == "alloc":
        a.events = [e for e in a.events if e["action"] != "free_requested"]
    if lost == "segment_alloc":
        a.events.insert(0, {"action": "segment_alloc", "addr": 5, "size": 20 * MIB, "stream": "", "frames": []})
    with pytest.raises(SnapshotError, match="parts of the history are missing"):
        start_of(a, tmp_path)


@settings(max_examples=40)
@given(
    st.sampled_from(["", "expandable_segments:True", "max_split_size_mb:20"]),
    st.lists(st.tuples(st.booleans(), st.integers(1, 40 * MIB)), max_size=50),
    st.integers(0, 50),
)
def test_a_record_may_begin_anywhere(recorder, tmp_path_factory, text, steps, begin):
    """Rewinding finds exactly the blocks that were held, with at least their rounded sizes."""
    a, live = recorder(text), []
    before = held_layout(a)
    for number, (allocates, size) in enumerate(steps):
        if number == begin:
            a.is_recording, before = True, held_layout(a)
        if allocates or not live:
            live.append(a.malloc(size))
        else:
            a.free(live.pop(size % len(live)))
    if not a.is_recording:
        before = held_layout(a)
    if not segments_of(a):
        return
    found = layout(start_of(a, tmp_path_factory.mktemp("record")))
    assert [(s[0], s[1], [b[0] for b in s[2]]) for s in found] == [(s[0], s[1], [b[0] for b in s[2]]) for s in before]
