import contextlib
import pickle
import random

import pytest

from torchledger.memory import SnapshotError, read_snapshot, replay

MIB = 1 << 20


def run(a, steps, seed):
    """Allocations and frees as of a program, with an emptied cache now and then."""
    draw = random.Random(seed)
    live = []
    for number in range(steps):
        if number == steps // 3:
            a.is_recording = True
        if number % 50 == 49:
            a.empty_cache()
        if live and draw.random() < 0.5:
            address = live.pop(draw.randrange(len(live)))
            if draw.random() < 0.2:
                a.record_stream(address, "side")
            a.free(address)
        else:
            size = int(2 ** draw.uniform(6, 26))
            live.append(a.malloc(size, draw.choice(["", "other"]), line=size % 7 + 1))
        if draw.random() < 0.1:
            a.finish_streams()


@pytest.mark.parametrize("text", ["", "expandable_segments:True", "max_split_size_mb:20", "roundup_power2_divisions:4"])
@pytest.mark.parametrize("seed", range(3))
def test_the_model_agrees_with_its_own_record_from_anywhere(recorder, tmp_path, text, seed):
    """Every block at its address, every segment in its size, and the sums of the last event are those of the end."""
    a = recorder(text)
    run(a, 400, seed)
    [record] = read_snapshot(a.dump(tmp_path / "s.pickle"))
    seen = replay(record)
    assert seen.agrees, seen.mismatches[:3]
    assert seen.num_same_address == seen.num_allocations > 100
    assert seen.num_same_size == seen.num_segments > 0
    statistics = a.statistics
    assert seen.allocated_curve[-1] == statistics.allocated.current == record.allocated_bytes
    assert seen.active_curve[-1] == statistics.active.current
    assert seen.reserved_curve[-1] == statistics.reserved.current == record.reserved_bytes
    assert seen.inactive_split_curve[-1] == statistics.inactive_split.current
    assert len(seen.positions) == len(seen.reserved_curve) == len(record.events) + 1


def test_the_record_is_a_timeline_with_its_sources(recorder, tmp_path):
    a = recorder()
    a.malloc(3 * MIB)
    a.is_recording = True
    a.free(a.malloc(5 * MIB, line=3))
    a.malloc(MIB, line=9)
    [record] = read_snapshot(a.dump(tmp_path / "s.pickle"))
    seen = replay(record)
    blocks = [(block.num_bytes, block.source, block.phase, block.freed) for block in seen.timeline.blocks]
    assert blocks == [
        (3 * MIB, "(before the record)", "before the record", None),
        (5 * MIB, "train.py:3 step", "", 2),
        (MIB, "train.py:9 step", "", None),
    ]
    assert seen.allocated_curve[seen.peak_event] == 8 * MIB
    assert seen.timeline.live_bytes_at(seen.positions[seen.peak_event]) == 8 * MIB


def test_a_record_of_other_rules_is_told_where_it_parts(recorder, tmp_path):
    """The same events, said to be of options under which PyTorch would have done something else."""
    a = recorder()
    a.is_recording = True
    for size in (4 * MIB, 5 * MIB, 30 * MIB):
        a.malloc(size)
    a.text = "large_segment_size_mb:16"
    [record] = read_snapshot(a.dump(tmp_path / "s.pickle"))
    seen = replay(record)
    assert not seen.agrees
    first = seen.mismatches[0]
    assert (first.what, first.recorded, first.modelled) == (
        "bytes of new memory taken from the device",
        20 * MIB,
        16 * MIB,
    )
    assert seen.num_same_size == 1, "the segment of 30 MiB"


def test_events_that_cannot_have_happened_are_told(recorder, tmp_path):
    """A block is asked to be freed twice before it is."""
    a = recorder()
    a.is_recording = True
    a.free(a.malloc(4 * MIB))
    a.events.insert(2, dict(a.events[2]))
    with pytest.raises(SnapshotError, match="its events cannot have happened in this order"):
        [replay(record) for record in read_snapshot(a.dump(tmp_path / "s.pickle"))]


def test_a_segment_of_no_bytes_is_told(recorder, tmp_path):
    a = recorder()
    a.malloc(4 * MIB)
    snapshot = a.snapshot()
    snapshot["segments"].append({**snapshot["segments"][0], "address": 0, "total_size": 0, "blocks": []})
    path = tmp_path / "s.pickle"
    path.write_bytes(pickle.dumps(snapshot))
    with pytest.raises(SnapshotError, match="cannot have happened"):
        [replay(record) for record in read_snapshot(path)]


@pytest.mark.parametrize("seed", range(30))
def test_damaged_records_are_replayed_or_refused_and_never_crash(recorder, tmp_path, seed):
    """Events lost, doubled, moved, and sizes changed."""
    a, draw = recorder(random.Random(seed).choice(["", "expandable_segments:True"])), random.Random(seed)
    run(a, 60, seed)
    for _ in range(3):
        index = draw.randrange(len(a.events))
        match draw.randrange(4):
            case 0:
                del a.events[index]
            case 1:
                a.events.insert(draw.randrange(len(a.events)), dict(a.events[index]))
            case 2:
                a.events[index]["size"] = draw.choice([0, -5, 1, 1 << 50])
            case _:
                a.events[index]["addr"] = draw.choice([0, -1, 1 << 70])
    with contextlib.suppress(SnapshotError):
        for record in read_snapshot(a.dump(tmp_path / "s.pickle")):
            assert replay(record).num_allocations <= len(record.events)
