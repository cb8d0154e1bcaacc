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
    for head, endpoint in (("node7", "node7:29500"), ("node7:1234", "node7:1234"), ("[::1]", "[::1]:29500")):
        assert f"--rdzv-endpoint={endpoint}" in shlex.split(ask(*asked, "--head", head).out)


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
