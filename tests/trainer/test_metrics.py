import json
import resource
import signal

import pytest

from torchledger.trainer.errors import RunFolderError
from torchledger.trainer.metrics import MetricsWriter, read_metrics


@pytest.fixture
def path(tmp_path):
    """Four steps, an evaluation after two of them, and a row cut in two."""
    path = tmp_path / "metrics.jsonl"
    with MetricsWriter(path, 0) as writer:
        for step in range(4):
            writer.write({"kind": "step", "step": step, "loss": 3.0 - step})
            if step == 1:
                writer.write({"kind": "evaluation", "step": 2, "validation_loss": 2.5})
    with path.open("a") as stream:
        stream.write('{"kind": "step", "st')
    return path


def kinds(path):
    return [(row["kind"][0], row["step"]) for row in read_metrics(path)]


def test_rows_are_there_at_once(tmp_path):
    """A row can be read as soon as it is written, while the file is open."""
    with MetricsWriter(tmp_path / "m.jsonl", 0) as writer:
        writer.write({"kind": "step", "step": 0})
        assert kinds(tmp_path / "m.jsonl") == [("s", 0)]


def test_a_row_cut_by_a_kill_is_left_out(path):
    """The last row, half written, is passed over."""
    assert kinds(path) == [("s", 0), ("s", 1), ("e", 2), ("s", 2), ("s", 3)]


def test_resuming_drops_what_will_be_run_again(path):
    """Resumed at step 2, the file keeps steps 0 and 1 and the evaluation after them, and goes on with step 2."""
    with MetricsWriter(path, 2) as writer:
        writer.write({"kind": "step", "step": 2})
    assert kinds(path) == [("s", 0), ("s", 1), ("e", 2), ("s", 2)]


def test_a_spike_belongs_to_its_step(path):
    """Resumed at step 3, a spike of step 3 will be seen again and is dropped; that of step 2 stays."""
    with MetricsWriter(path, 4) as writer:
        writer.write({"kind": "spike", "step": 2})
        writer.write({"kind": "spike", "step": 3})
    MetricsWriter(path, 3).close()
    assert kinds(path)[-2:] == [("s", 2), ("s", 2)]


def test_a_run_that_begins_anew_has_no_rows(path):
    """Killed before its first checkpoint, it will warn and evaluate again: nothing of before stays."""
    path.write_text('{"kind": "warning", "step": 0}\n')
    MetricsWriter(path, 0).close()
    assert kinds(path) == []


def test_not_a_number_becomes_null(tmp_path):
    """JSON has no infinity: such a figure is null, and every row is strict JSON."""
    path = tmp_path / "m.jsonl"
    with MetricsWriter(path, 0) as writer:
        writer.write({"kind": "step", "step": 0, "loss": float("nan"), "gradient_norm": float("inf")})
    assert json.loads(path.read_text()) == {"kind": "step", "step": 0, "loss": None, "gradient_norm": None}


def test_damage_within_is_told(path):
    """A damaged row that is not the last is an error with its line."""
    lines = path.read_text().splitlines()
    path.write_text("\n".join(["{broken", *lines]))
    with pytest.raises(RunFolderError, match="damaged at line 1"):
        read_metrics(path)


@pytest.mark.parametrize("broken", [b"{broken", b"\xff\xfe\x00", b"[1, 2]", b'{"kind": 3}'])
def test_damage_within_keeps_no_run_from_going_on(path, broken):
    """A line that is no row is left out and told with its number; the file as it was is kept beside the new one."""
    lines = path.read_bytes().split(b"\n")
    before = b"\n".join([lines[0], broken, *lines[1:]])
    path.write_bytes(before)
    with MetricsWriter(path, 3) as writer:
        assert f"{path} was damaged at line 2, which is left out" in writer.damage
        writer.sync()
    assert kinds(path) == [("s", 0), ("s", 1), ("e", 2), ("s", 2)]
    assert path.with_name("metrics.damaged.jsonl").read_bytes() == before


def test_zeros_at_the_end_are_a_row_that_was_cut(path):
    """After a power cut a file may end in zeros where data had not reached the disk: they are no damage within."""
    with path.open("ab") as stream:
        stream.write(bytes(512))
    assert len(kinds(path)) == 5
    with MetricsWriter(path, 4) as writer:
        assert writer.damage == ""


def test_a_missing_file_and_folder_are_told(tmp_path):
    """What cannot be read or written is an error of the run folder."""
    with pytest.raises(RunFolderError, match="cannot read"):
        read_metrics(tmp_path / "no.jsonl")
    with pytest.raises(RunFolderError, match="cannot write"):
        MetricsWriter(tmp_path / "no" / "m.jsonl", 0)


def test_a_full_disk_is_told(tmp_path):
    """A row that the system refuses to write is an error, not a silent gap; what it took of it is passed over."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    writer = MetricsWriter(tmp_path / "m.jsonl", 0)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(RunFolderError, match="File too large"):
            writer.write({"kind": "step", "step": 0, "loss": 1.0})
        writer.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert (tmp_path / "m.jsonl").stat().st_size == 10
    assert read_metrics(tmp_path / "m.jsonl") == []
