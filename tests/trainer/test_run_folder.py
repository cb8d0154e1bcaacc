import datetime as dt
import os
import re
import subprocess
import sys

import pytest

from torchledger.trainer.errors import RunFolderError
from torchledger.trainer.run_folder import RunFolder

NOW = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)


@pytest.fixture
def tokenizer(data_folder):
    return data_folder / "tokenizer.json"


def test_its_name_is_the_runs_and_the_time(config, tokenizer):
    """A new run has a folder of its own, and `latest` points to it."""
    folder = RunFolder.create(config, NOW)
    folder.write_start(config, {"seed": 1}, tokenizer)
    assert folder.path == config.runs / "run-20260102-030405"
    assert (config.runs / "latest").resolve() == folder.path.resolve()
    assert RunFolder.open(config.runs / "latest").path == folder.path.resolve()
    assert folder.config() == config


def test_latest_moves_to_the_newer_run(config):
    """The link always points to the run begun last."""
    RunFolder.create(config, NOW)
    for later in (dt.timedelta(seconds=1), -dt.timedelta(hours=1)):  # a clock may go backwards
        second = RunFolder.create(config, NOW + later)
        assert (config.runs / "latest").resolve() == second.path.resolve()


def test_two_runs_of_one_second_have_folders_of_their_own(config):
    """The second is numbered, and neither is touched by the other."""
    first, second, third = (RunFolder.create(config, NOW) for _ in range(3))
    assert [each.path.name.removeprefix(first.path.name) for each in (first, second, third)] == ["", "-2", "-3"]


def test_a_folder_named_by_the_user_moves_no_link(config, tmp_path):
    """Only in `runs` is there a `latest`; beside a folder elsewhere nothing appears."""
    RunFolder.create(config, NOW, tmp_path / "elsewhere" / "here")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["here"]


def test_a_file_called_latest_is_left_alone(config):
    """What is no link of ours is not replaced."""
    config.runs.mkdir()
    (config.runs / "latest").write_text("mine")
    RunFolder.create(config, NOW)
    assert (config.runs / "latest").read_text() == "mine"


def test_a_folder_with_a_run_in_it_is_refused(config, tokenizer, tmp_path):
    """A run never mixes with another: the folder is refused, and the message says what to do.

    Killed before its first checkpoint a run begins again, and what has no configuration any more cannot be resumed.
    """
    path = tmp_path / "he re"
    folder = RunFolder.create(config, NOW, path)
    folder.write_start(config, {}, tokenizer)
    resume = re.escape(f"torchledger train --resume '{path}'")
    with pytest.raises(RunFolderError, match=f"has saved nothing to go on from; {resume} begins it again, or choose"):
        RunFolder.create(config, NOW, path)
    (folder.checkpoints / "step-00000002").mkdir(parents=True)
    with pytest.raises(RunFolderError, match=f"has a run in it; {resume} goes on with it, or choose another"):
        RunFolder.create(config, NOW, path)
    folder.config_path.unlink()
    with pytest.raises(RunFolderError, match=r"and no config.toml to go on by; choose another folder, or take it away"):
        RunFolder.create(config, NOW, path)


def test_a_folder_that_is_trained_in_is_refused_with_who_does(config, tokenizer, tmp_path):
    """A second run of the same folder, the first alive, is told of process, host and time, not to resume it."""
    folder = RunFolder.create(config, NOW, tmp_path / "here")
    folder.write_start(config, {}, tokenizer)
    told = rf"another process is training in .* \(process {os.getpid()} on {os.uname().nodename}, since 20"
    with folder.locked(), pytest.raises(RunFolderError, match=told):
        folder.require_free()
    with pytest.raises(RunFolderError, match="has saved nothing"):
        folder.require_free()


@pytest.mark.parametrize(
    ("saved", "has_saved"),
    [
        ("", False),
        (".step-00000002.partial", False),  # begun when the run was killed
        ("step-00000002", True),
        ("damaged-step-00000002", True),
    ],
)
def test_what_was_saved_is_seen_by_what_is_there(tmp_path, saved, has_saved):
    """A checkpoint counts, whole or set aside as damaged; one that was being written does not."""
    folder = RunFolder(tmp_path)
    (folder.checkpoints / saved).mkdir(parents=True)
    assert folder.has_saved is has_saved


def test_what_was_saved_and_taken_away_was_saved(tmp_path):
    """The rows tell of a checkpoint that is no longer there: its steps are not to be dropped unasked."""
    folder = RunFolder(tmp_path)
    folder.metrics_path.write_text('{"kind": "step", "step": 0}\n')
    assert not folder.has_saved
    folder.metrics_path.write_text('{"kind": "step", "step": 0}\ntorn\n{"kind": "checkpoint", "step": 1}\n')
    assert folder.has_saved


def test_a_folder_with_other_things_is_taken(config, tmp_path):
    """Files that are no run's are no obstacle."""
    (tmp_path / "notes.txt").write_text("x")
    assert RunFolder.create(config, NOW, tmp_path).path == tmp_path


def test_nothing_is_written_over(config, tmp_path):
    """A project's config.toml, a model's tokenizer.json: a run that would write over them is refused by their names."""
    names = ("config.toml", "tokenizer.json", "report.html")
    for name in names:
        (tmp_path / name).write_text("mine")
    with pytest.raises(RunFolderError, match=r"has config.toml, tokenizer.json, report.html in it.* take them away"):
        RunFolder.create(config, NOW, tmp_path)
    assert [(tmp_path / name).read_text() for name in names] == ["mine"] * 3


def test_where_no_folder_can_be_made_is_told(tmp_path, monkeypatch):
    """Below a file there is none, and none where nothing may be written: before a run has measured anything."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match=r"file is a file; choose another"):
        RunFolder(tmp_path / "file" / "runs" / "one").require_writable()
    RunFolder(tmp_path / "new" / "one").require_writable()
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests' user may be one who may write anywhere
    with pytest.raises(RunFolderError, match=rf"cannot write to {tmp_path}: permission denied") as caught:
        RunFolder(tmp_path / "new" / "one").require_writable()
    assert isinstance(caught.value.__cause__, PermissionError)  # exit code 1: no fault of the question


def test_a_checkpoints_path_leads_to_its_run(config, tokenizer):
    """The run is found from a checkpoint inside it."""
    folder = RunFolder.create(config, NOW)
    folder.write_start(config, {}, tokenizer)
    inside = folder.checkpoints / "step-00000001"
    inside.mkdir(parents=True)
    assert RunFolder.open(inside).path == folder.path.resolve()


def test_no_run_is_told(tmp_path):
    """A folder without a run says what is missing."""
    with pytest.raises(RunFolderError, match=r"no run in .*no config\.toml"):
        RunFolder.open(tmp_path)


def test_a_file_in_the_way_is_told(config):
    """Where the folder cannot be made, the error says so."""
    config.runs.write_text("in the way")
    with pytest.raises(RunFolderError, match="cannot make the run folder"):
        RunFolder.create(config, NOW)


def test_two_processes_cannot_train_in_one_folder(tmp_path):
    """While another process holds the folder it is refused; when that ends, even killed, it is free."""
    hold = (
        "import sys, time, pathlib; from torchledger.trainer.run_folder import RunFolder\n"
        "with RunFolder(pathlib.Path(sys.argv[1])).locked(): print('in', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", hold, tmp_path], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "in\n"
    with pytest.raises(RunFolderError, match="another process is training"), RunFolder(tmp_path).locked():
        pass
    process.kill()
    process.communicate()
    with RunFolder(tmp_path).locked():
        assert (tmp_path / ".lock").exists()
