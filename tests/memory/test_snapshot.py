import os
import pickle

import pytest

from torchledger.memory import AllocatorSettings, SnapshotError, read_snapshot

MIB = 1 << 20


def test_a_snapshot_is_read_with_its_events_segments_and_options(recorder, tmp_path):
    a = recorder("max_split_size_mb:64")
    a.is_recording = True
    a.malloc(3 * MIB, line=7)
    a.free(a.malloc(100))
    [record] = read_snapshot(a.dump(tmp_path / "s.pickle"))
    assert record.device == 0
    assert record.settings == AllocatorSettings(max_split_bytes=64 * MIB)
    assert [event.action for event in record.events] == [
        "segment_alloc",
        "alloc",
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
    ]
    assert record.events[1].origin.text == "train.py:7 step"
    assert (record.allocated_bytes, record.reserved_bytes) == (3 * MIB, 22 * MIB)


def test_options_come_from_the_fields_where_the_text_is_not_understood(tmp_path):
    told = {
        "PYTORCH_CUDA_ALLOC_CONF": "an_option_of_the_future:1",
        "max_split_size": 64 * MIB,
        "expandable_segments": True,
        "garbage_collection_threshold": 0.5,
        "roundup_power2_divisions": {str(1 << n): 4 for n in range(16)},
    }
    data = {"segments": [], "device_traces": [[event("snapshot", 0, 0)]], "allocator_settings": told}
    [record] = read_snapshot(written(tmp_path, data))
    assert record.settings == AllocatorSettings(
        expandable_segments=True,
        max_split_bytes=64 * MIB,
        garbage_collection_threshold=0.5,
        roundup_power2_divisions=(4,) * 16,
    )


def event(action, address, size, **more):
    return {"action": action, "addr": address, "size": size, "stream": 0, "time_us": 0, "frames": [], **more}


def written(folder, data, name="s.pickle"):
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else pickle.dumps(data))
    return path


class Hostile:
    """Runs a command when it is unpickled without care."""

    def __reduce__(self):
        return os.system, ("echo should never run",)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"PK\x03\x04rest", "a zip file, as torch.save writes"),
        (b"\x1f\x8b\x08\x00", "compressed by gzip; unpack it first"),
        (b"# notes\n", "not a pickle; torch.cuda.memory._dump_snapshot(path) writes one"),
        (pickle.dumps(Hostile()), "holds no class or function, and loading one could run code"),
        (pickle.dumps({"segments": [Hostile()]}), "the file names posix.system"),
        (pickle.dumps({"segments": [], "device_traces": [[]]})[:-9], "ends too early"),
        (b"\x80\x04\xff\xff", "a damaged pickle"),
        (pickle.dumps([1, 2]), "a pickle of a list, not of a snapshot"),
        (pickle.dumps({"model": {}}), "it has no segments and no device_traces"),
        (pickle.dumps({"segments": [], "device_traces": [[]]}), "the snapshot is empty"),
        (pickle.dumps({"segments": [{}], "device_traces": [[]]}), "a field of the snapshot is missing or wrong"),
        (pickle.dumps({"segments": [], "device_traces": [[event("jump", 0, 0)]]}), "an action 'jump'"),
        (pickle.dumps({"segments": [], "device_traces": [["x"]]}), "a field of the snapshot is missing or wrong"),
    ],
)
def test_what_is_no_snapshot_is_refused_with_the_reason(tmp_path, data, message):
    path = written(tmp_path, data)
    with pytest.raises(SnapshotError) as error:
        read_snapshot(path)
    assert message in str(error.value)
    assert str(path) in str(error.value)


def test_each_device_has_a_record_of_its_own(tmp_path):
    traces = [[], [event("oom", 0, 512, device_free=77)], []]
    [record] = read_snapshot(written(tmp_path, {"segments": [], "device_traces": traces}))
    assert record.device == 1
    assert record.events[0].address == 77
