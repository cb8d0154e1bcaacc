"""`count --snapshot`, on a snapshot of a few events written here in the form that PyTorch writes."""

import os
import pickle

import pytest

MIB = 1 << 20


def frames(line):
    return [{"filename": "/home/me/train.py", "line": line, "name": "step"}]


def event(action, address, size, line=1):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": frames(line)}


def segment(address, size, blocks, device=0):
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "blocks": [
            {"address": a, "size": n, "requested_size": n, "state": state, "frames": []} for a, n, state in blocks
        ],
    }


# 30 MiB held from before; 12 MiB come and go beside 4 MiB of line 7 that stay.
SEGMENTS = [
    segment(0, 30 * MIB, [(0, 30 * MIB, "active_allocated")]),
    segment(100 * MIB, 12 * MIB, [(100 * MIB, 12 * MIB, "inactive")]),
    segment(200 * MIB, 20 * MIB, [(200 * MIB, 4 * MIB, "active_allocated"), (204 * MIB, 16 * MIB, "inactive")]),
]
EVENTS = [
    event("segment_alloc", 100 * MIB, 12 * MIB, 5),
    event("alloc", 100 * MIB, 12 * MIB, 5),
    event("segment_alloc", 200 * MIB, 20 * MIB, 7),
    event("alloc", 200 * MIB, 4 * MIB, 7),
    event("free_requested", 100 * MIB, 12 * MIB),
    event("free_completed", 100 * MIB, 12 * MIB),
]
SNAPSHOT = {"segments": SEGMENTS, "device_traces": [EVENTS], "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": ""}}


@pytest.fixture
def file(tmp_path):
    """Write a snapshot, the one above or a changed one."""

    def write(data=SNAPSHOT):
        path = tmp_path / "gpu.pickle"
        path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
        return path

    return write


def test_it_tells_who_held_what_at_the_peak(ask, file):
    """30 + 12 + 4 MiB, by line and by size."""
    answer = ask("count", "--snapshot", file())
    assert answer.code == 0
    assert "gpu.pickle: 46 MiB allocated at the peak, 62 MiB reserved" in answer.out
    assert "30 MiB → 46 MiB → 34 MiB" in answer.out
    assert "train.py:5 step" in answer.out
    assert "31,457,280" in answer.out
    assert "2 of 2 allocations at their recorded address, 2 of 2 new segments in their size" in answer.out
    assert "the record begins in the middle" in answer.out


def test_as_json(ask, file):
    answer = ask("count", "--snapshot", file(), "--json").json["answer"]
    assert answer["start"]["allocated_bytes"] == 30 * MIB
    assert answer["peak"] == {
        "allocated_bytes": 46 * MIB,
        "active_bytes": 46 * MIB,
        "reserved_bytes": 62 * MIB,
        "inactive_split_bytes": 16 * MIB,
    }
    assert answer["end"]["allocated_bytes"] == 34 * MIB
    assert [(h["what"], h["num_bytes"]) for h in answer["held_at_peak"]["by_source"]] == [
        ("(before the record)", 30 * MIB),
        ("train.py:5 step", 12 * MIB),
        ("train.py:7 step", 4 * MIB),
    ]
    assert answer["model"] | {"mismatches": None} == {
        "agrees": True,
        "num_allocations": 2,
        "num_same_address": 2,
        "num_segments": 2,
        "num_same_size": 2,
        "mismatches": None,
    }
    assert answer["curves"]["allocated_bytes"] == [n * MIB for n in (30, 30, 42, 42, 46, 34, 34)]
    assert answer["what_if"] is None


def test_other_options_can_be_tried(ask, file):
    """46 MiB in pages of 20 are 60."""
    answer = ask("count", "--snapshot", file(), "--allocator", "expandable_segments:True", "--json").json["answer"]
    assert answer["what_if"]["peak"]["reserved_bytes"] == 60 * MIB
    assert "under other options" in ask("count", "--snapshot", file(), "--allocator", "max_split_size_mb:20").out


def test_a_model_that_parts_from_the_record_says_where(ask, file):
    """The record says that 4 MiB took a segment of 16 MiB, which no option of it does."""
    events = [EVENTS[0], EVENTS[1], event("segment_alloc", 200 * MIB, 16 * MIB), *EVENTS[3:]]
    changed = [*SEGMENTS[:2], segment(200 * MIB, 16 * MIB, [(200 * MIB, 4 * MIB, "active_allocated")])]
    answer = ask("count", "--snapshot", file({**SNAPSHOT, "segments": changed, "device_traces": [events]}))
    assert answer.code == 0
    assert "1 of 2 new segments in their size" in answer.out
    assert "recorded 16,777,216, modelled 20,971,520" in answer.out


def test_without_history_the_moment_of_the_snapshot_is_shown(ask, file):
    answer = ask("count", "--snapshot", file({**SNAPSHOT, "device_traces": [[]]}))
    assert answer.code == 0
    assert "34 MiB allocated at the peak" in answer.out
    assert "no history was recorded" in answer.out


def test_of_several_devices_the_fullest_is_shown_and_the_others_are_named(ask, file):
    small = segment(0, 2 * MIB, [(0, 2 * MIB, "inactive")], device=1)
    answer = ask("count", "--snapshot", file({**SNAPSHOT, "segments": [*SEGMENTS, small]}))
    assert "device 0, on which most is reserved; the file tells of 1 too" in answer.out


class Hostile:
    """Runs a command when it is unpickled without care."""

    def __reduce__(self):
        return os.system, ("echo should never run",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"model weights", "not a pickle"),
        (pickle.dumps(SNAPSHOT)[:-20], "ends too early"),
        (pickle.dumps(Hostile()), "loading one could run code"),
        (pickle.dumps({"state_dict": {}}), "not a snapshot of torch.cuda.memory"),
        (pickle.dumps({**SNAPSHOT, "device_traces": [EVENTS[:4]]}), "parts of the history are missing"),
    ],
)
def test_what_is_no_snapshot_is_refused_in_one_line(ask, file, data, message):
    path = file(data)
    answer = ask("count", "--snapshot", path)
    assert answer.code == 2
    assert message in answer.err
    assert str(path) in answer.err or "history" in message
    assert answer.err.count("\n") == 1
    assert answer.out == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpt2", "--snapshot"], "MODEL"),
        (["--batch", "2", "--snapshot"], "--batch does not go with --snapshot"),
        (["--allocator", "zzz:1", "--snapshot"], "the allocator has no option 'zzz'"),
    ],
)
def test_a_snapshot_is_the_whole_question(ask, file, words, message):
    answer = ask("count", *words, file())
    assert answer.code == 2
    assert message in answer.err


def test_the_model_is_asked_for_without_a_snapshot(ask):
    assert "Missing argument 'MODEL' (or --snapshot FILE)" in ask("count").err
    answer = ask("count", "gpt2", "--allocator", "expandable_segments:True")
    assert (answer.code, "--allocator goes with --snapshot" in answer.err) == (2, True)
