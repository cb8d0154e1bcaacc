"""`torchledger launch`: the command line that starts a run on its ranks."""

import shlex

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
def run_file(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text(RUN)
    return path


def test_the_command_starts_as_many_ranks_as_the_strategy_has(ask, run_file):
    """On stdout there is the command alone, for a shell to run; one host starts up to eight ranks."""
    run_file.write_text(RUN + "[strategy]\ndata_parallel = 2\nshard_level = 3\ntensor_parallel = 2\n")
    words = shlex.split(ask("launch", str(run_file), "--set", "name=mine").out)
    assert words == [
        "torchrun", "--nnodes=1", "--nproc-per-node=4",
        "-m", "torchledger", "train", str(run_file), "--set", "name=mine",
    ]  # fmt: skip


def test_ranks_are_replicas_where_the_file_says_nothing(ask, run_file):
    """A file for one process runs on any number of ranks that its batch can be shared by; one needs no torchrun."""
    assert "--nproc-per-node=4" in ask("launch", str(run_file), "--ranks", "4").out
    assert shlex.split(ask("launch", str(run_file)).out)[0] == "python"


def test_many_hosts_meet_at_one_of_them(ask, run_file):
    """16 ranks on hosts of 4 are 4 hosts, each of which runs the command; the JSON has the same words."""
    batch = ("--set", "recipe.batch_size=16")
    answer = ask("launch", run_file, *batch, "--ranks", 16, "--per-host", 4, "--json").json
    assert answer["answer"]["words"][1:5] == [
        "--nnodes=4", "--nproc-per-node=4", "--rdzv-backend=c10d", "--rdzv-endpoint=$HEAD_NODE:29500",
    ]  # fmt: skip
    assert any("every host" in each for each in answer["assumptions"])


def test_what_the_ranks_cannot_share_is_told_before_anything_starts(ask, run_file):
    """Exit code 2 and every reason, before a single process is started."""
    run_file.write_text(RUN + "[strategy]\ndata_parallel = 3\npipeline_parallel = 2\n")
    result = ask("launch", run_file)
    assert result.code == 2
    assert "3 ranks cannot share a batch of 8" in result.err
    assert "pipeline_parallel" in result.err
