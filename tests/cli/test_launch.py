"""`torchledger launch`: the command line that starts a run on its ranks."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
data = "data"
num_steps = 4
model = "gpt2"
[recipe]
batch_size = 8
sequence_length = 64
"""


@pytest.fixture
def run_file(tmp_path, monkeypatch):
    """A run's file, where a shell finds this environment's programs by their names."""
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def test_the_command_starts_as_many_ranks_as_the_strategy_has(ask, run_file):
    """On stdout there is the command alone, for a shell to run; one host starts up to eight ranks."""
    run_file.write_text(RUN + "[strategy]\ndata_parallel = 2\nshard_level = 3\ntensor_parallel = 2\n")
    words = shlex.split(ask("launch", str(run_file), "--set", "name=mine").out)
    assert words == [
        "torchrun", "--standalone", "--nproc-per-node=4",
        "-m", "torchledger", "train", str(run_file), "--set", "name=mine",
    ]  # fmt: skip


def test_ranks_are_replicas_where_the_file_says_nothing(ask, run_file):
    """A file for one process runs on any number of ranks that its batch can be shared by; one needs no torchrun."""
    assert "--nproc-per-node=4" in ask("launch", str(run_file), "--ranks", "4").out
    assert shlex.split(ask("launch", str(run_file)).out)[0] == "python"


def test_many_hosts_meet_at_one_of_them(ask, run_file):
    """16 ranks on hosts of 4 are 4 hosts, each of which runs the command; the JSON has the same words."""
    batch = ("--set", "recipe.batch_size=16")
    asked = ("launch", run_file, *batch, "--ranks", 16, "--per-host", 4, "--set", "name=my run")
    answer = ask(*asked, "--json").json
    assert answer["answer"]["words"][1:6] == [
        "--nnodes=4", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=${HEAD_NODE:?}:29500",
        "--rdzv-id=my run",
    ]  # fmt: skip
    assert any("each of the 4 hosts" in each for each in answer["assumptions"])
    heads = {"node7": "node7:29500", "node7:1234": "node7:1234", "[::1]": "[::1]:29500", "fe80::1": "[fe80::1]:29500"}
    for head, endpoint in heads.items():
        assert f"--rdzv-endpoint={endpoint}" in shlex.split(ask(*asked, "--head", head).out)


@pytest.mark.parametrize("ranks", [1, 4])
def test_one_host_has_nowhere_to_meet(ask, run_file, ranks):
    """A host to meet at means that there are several: for one it is a mistake, not something to leave out quietly."""
    result = ask("launch", run_file, "--ranks", ranks, "--head", "node0")
    assert result.code == 2
    assert f"one host starts all of {ranks}" in result.err


@pytest.mark.parametrize("head", ["", ":5", "two words:80", "node:70000", "node:0", "node:ssh", "node:"])
def test_what_is_no_host_is_told_before_many_hosts_wait_for_it(ask, run_file, head):
    """Exit code 2; torchrun takes an empty name for this host, so that each would wait for the others for ever."""
    result = ask("launch", run_file, "--ranks", 8, "--per-host", 4, "--head", head)
    assert result.code == 2
    assert f"{head!r} names no host to meet at; write" in result.err
    assert not result.out


def test_a_shell_fills_in_the_host_that_all_meet_at_and_nothing_else(ask, run_file):
    """As a shell reads the command: HEAD_NODE becomes its value, a dollar in a setting stays; unset, nothing starts."""
    asked = ("launch", run_file, "--ranks", 8, "--per-host", 4, "--set", "name=$HOME costs $5")
    command = ask(*asked).out.replace("torchrun", "printf '%s\\n'", 1)

    def run(**environment):
        words = ["bash", "-c", command]
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)

    read = run(HEAD_NODE="node7", PATH=os.environ["PATH"]).stdout.splitlines()
    assert read[3] == "--rdzv-endpoint=node7:29500"
    assert read[-1] == "name=$HOME costs $5"
    unset = run(PATH=os.environ["PATH"])
    assert unset.returncode != 0
    assert "HEAD_NODE" in unset.stderr


def test_programs_that_a_shell_does_not_find_are_told_by_their_path(ask, run_file, monkeypatch):
    """Outside an activated environment `torchrun` is another one or none: this Python runs it as a module."""
    monkeypatch.setenv("PATH", "/nowhere")
    words = shlex.split(ask("launch", run_file, "--ranks", 2).out)
    assert words[:4] == [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    assert shlex.split(ask("launch", run_file).out)[:3] == [sys.executable, "-m", "torchledger"]


def test_what_the_ranks_cannot_share_is_told_before_anything_starts(ask, run_file):
    """Exit code 2 and every reason, before a single process is started."""
    run_file.write_text(RUN + "[strategy]\ndata_parallel = 3\npipeline_parallel = 2\n")
    result = ask("launch", run_file)
    assert result.code == 2
    assert "3 ranks cannot share a batch of 8" in result.err
    assert "pipeline_parallel" in result.err


def _run_held_by(tmp_path, monkeypatch, num_ranks):
    """The folder of a run whose checkpoint so many ranks wrote, as far as `launch` reads it."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.toml").write_text(RUN)
    monkeypatch.setattr("torchledger.cli.launch._held_by", lambda found: num_ranks if found.path == folder else 0)
    return folder


def test_a_run_goes_on_by_as_many_ranks_as_hold_it(ask, run_file, tmp_path, monkeypatch):
    """Replicas are in no strategy that was asked for; the checkpoint says how many there were."""
    folder = _run_held_by(tmp_path, monkeypatch, 2)
    words = shlex.split(ask("launch", folder, "--resume").out)
    assert words[2:] == ["--nproc-per-node=2", "-m", "torchledger", "train", "--resume", str(folder)]
    assert run_file.exists()


def test_a_run_that_has_saved_nothing_begins_again_by_as_many_ranks(ask, tmp_path):
    """There is no checkpoint to say how many there were, and none that others would be refused by."""
    (tmp_path / "config.toml").write_text(RUN)
    (tmp_path / "environment.json").write_text('{"numerics": {"world_size": 2}}')
    assert "--nproc-per-node=2" in shlex.split(ask("launch", tmp_path, "--resume").out)
    other = ask("launch", tmp_path, "--resume", "--ranks", 4)
    assert "--nproc-per-node=4" in shlex.split(other.out)
    assert "refuses" not in other.err


def test_on_other_ranks_it_is_told_that_changes_have_to_be_allowed(ask, run_file, tmp_path, monkeypatch):
    """What `train` would refuse when its ranks have started is told before, and allowed in the command."""
    folder = _run_held_by(tmp_path, monkeypatch, 2)
    asked = ("launch", folder, "--resume", "--ranks", 4)
    told = "its checkpoint is of 2 and this of 4 ranks, which train refuses without --allow-changes"
    assert told in ask(*asked).err
    allowed = ask(*asked, "--allow-changes")
    assert told not in allowed.err
    assert shlex.split(allowed.out)[-1] == "--allow-changes"
    assert ask("launch", run_file, "--allow-changes").code == 2


def test_a_run_that_cannot_go_on_starts_no_ranks(ask, run_file, tmp_path):
    """No run in the folder, or none that was saved: as `train --resume` would say it."""
    assert "there is no config.toml" in ask("launch", tmp_path, "--resume").err
    (tmp_path / "config.toml").write_text(run_file.read_text())
    assert "no whole checkpoint" in ask("launch", tmp_path, "--resume").err


def test_hosts_that_are_not_filled_name_the_option_that_says_their_size(ask, run_file):
    """12 ranks on hosts of 8: 2, 3, 4 and 6 divide 12, and `--per-host` says so, not the planner's `--island`."""
    told = ask("launch", run_file, "--ranks", 12, "--set", "recipe.batch_size=12")
    assert told.code == 2
    assert "12 ranks do not fill hosts of 8 chips; say how many a host starts with --per-host 2, 3, 4 or 6" in told.err
