"""`train` as torchrun starts it: two processes, one run."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from torchledger.cli import torchrun
from torchledger.cli.failure import Failed
from torchledger.trainer.errors import CheckpointError, RankLost
from torchledger.trainer.prepare import prepare

RUN = """
data = "data"
num_steps = {steps}
eval_interval = 3
eval_batches = 2
checkpoint_interval = 2
keep = 9
device = "cpu"
num_threads = 1
model = {{ name = "tiny", vocab_size = 257, hidden_size = 32, num_layers = 2, max_sequence_length = 32, \
attention = {{ num_heads = 4 }}, mlp = {{ intermediate_size = 48 }} }}
recipe = {{ batch_size = 4, sequence_length = 16, optimizer = {{ learning_rate = 0.01, warmup_steps = 2 }} }}
sample = {{ length = 4 }}
"""
SHARDED = ("--set", "strategy.data_parallel=2", "--set", "strategy.shard_level=3")
ALONE = ("--set", "strategy.data_parallel=1", "--set", "strategy.shard_level=0", "--allow-changes")


@pytest.fixture
def work(tmp_path):
    """A folder with data and a run of eight steps."""
    source = tmp_path / "text"
    source.mkdir()
    for i in range(16):
        (source / f"{i}.txt").write_text("".join(f"line {i * j % 97} of text {i}\n" for j in range(12)))
    prepare(source, tmp_path / "data", tokenizer="bytes", validation_fraction=0.2)
    (tmp_path / "run.toml").write_text(RUN.format(steps=8))
    return tmp_path


def _start(work, ranks, *words):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    start = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *start, "-m", "torchledger", "train", *words]
    return subprocess.Popen(
        command, cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _train(work, ranks, *words):
    out, err = (process := _start(work, ranks, *words)).communicate(timeout=240)
    assert process.returncode == 0, err
    return out


def _losses(folder: Path) -> dict[int, float]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {row["step"]: row["loss"] for row in rows if row["kind"] == "step"}


def _books(folder: Path) -> dict[str, dict]:
    rows = json.loads((folder / "books.json").read_text())["differences"]
    return {row["quantity"]: row for row in rows}


def test_a_checkpoint_of_two_ranks_goes_on_with_one_and_back(work):
    """Two sharded ranks give the losses of one process; begun by two, gone on by one, ended by two gives them too."""
    _train(work, 1, "run.toml", "--out", "one")
    out = _train(work, 2, "run.toml", "--out", "two", *SHARDED)
    assert out.count("predicted against measured") == 1  # one rank is heard
    whole = _losses(work / "one")
    assert _losses(work / "two") == pytest.approx(whole, rel=1e-5)
    books = _books(work / "two")
    for quantity in ("step_flops", "communication_bytes"):
        assert books[quantity]["predicted"] == books[quantity]["measured"] > 0
    _go_back(work / "two", 2)
    _train(work, 1, "--resume", "two", *ALONE)
    assert _losses(work / "two") == pytest.approx(whole, rel=1e-5)
    _go_back(work / "two", 6)
    _train(work, 2, "--resume", "two", *SHARDED, "--allow-changes")
    assert _losses(work / "two") == pytest.approx(whole, rel=1e-5)


def test_two_ranks_that_were_killed_before_they_saved_begin_again(work):
    """With nothing saved all ranks begin at step 0 together, and give the losses of a run that was not killed."""
    _train(work, 2, "run.toml", "--out", "whole")
    process, folder = _begun(work, "--set", "checkpoint_interval=0")
    ranks = _ranks(process)
    for number in (process.pid, *ranks):
        os.kill(number, signal.SIGKILL)
    process.communicate()
    assert all(map(_has_ended, ranks))
    told = _start(work, 2, "--resume", "long", "--set", "num_steps=8")
    err = told.communicate(timeout=240)[1]
    assert told.returncode == 0, err
    assert err.count("has saved nothing to go on from: it begins at step 0") == 1
    assert _losses(folder) == _losses(work / "whole")


def _go_back(folder: Path, step: int) -> None:
    """Take the checkpoints after a step away, so that a resumed run has steps to do."""
    for path in (folder / "checkpoints").glob("step-*"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


def _begun(work, *words):
    """Two ranks of a long run that have done a few steps: torchrun's process, and the folder."""
    (work / "run.toml").write_text(RUN.format(steps=100_000))
    process = _start(work, 2, "run.toml", "--out", "long", *words)
    metrics = work / "long" / "metrics.jsonl"
    for _ in range(1200):
        if process.poll() is not None or (metrics.exists() and '"step": 3' in metrics.read_text()):
            break
        time.sleep(0.1)
    assert process.poll() is None
    return process, work / "long"


def _saved_last(folder: Path) -> None:
    """The last step that was done is in a checkpoint."""
    done = max(_losses(folder)) + 1
    assert (folder / "checkpoints" / f"step-{done:08d}" / "manifest.json").is_file()


def _ranks(process) -> list[int]:
    """Process numbers of what torchrun has started."""
    told = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(each) for each in told.split()]


def _has_ended(number: int) -> bool:
    for _ in range(600):
        status = Path(f"/proc/{number}/status")
        if not status.exists() or "State:\tZ" in status.read_text():
            return True
        time.sleep(0.1)
    return False


def test_a_signal_to_one_rank_stops_all_at_the_same_step(work):
    """Rank 0 alone gets SIGTERM: both finish the step, save together, and end; the run goes on from there."""
    process, folder = _begun(work)
    try:
        environment = json.loads((folder / "environment.json").read_text())
        os.kill(environment["system"]["process_id"], signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "stopped after step" in err
    _saved_last(folder)


@pytest.mark.proof
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_torchrun_is_saved_once(work, number):
    """What torchrun passes on to both ranks stops them at one step, with one checkpoint of it."""
    process, folder = _begun(work, *SHARDED)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert err.count("stopped after step") == 1
    _saved_last(folder)


@pytest.mark.proof
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for a process's children")
def test_without_torchrun_the_ranks_save_and_end(work):
    """SIGKILL to torchrun, which passes nothing on: its ranks notice within seconds, save, and leave nobody behind."""
    process, folder = _begun(work, *SHARDED)
    ranks = _ranks(process)
    assert len(ranks) == 2
    process.kill()
    assert all(map(_has_ended, ranks))
    _saved_last(folder)
    assert "Traceback" not in process.communicate(timeout=60)[1]


@pytest.mark.proof
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="asks Linux for a process's children")
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_killed_ends_the_other(work, rank):
    """SIGKILL to one rank: the other says that a rank is lost and which checkpoint is whole, ends, and it goes on."""
    process, folder = _begun(work, *SHARDED)
    first = json.loads((folder / "environment.json").read_text())["system"]["process_id"]
    ranks = _ranks(process)
    killed = first if rank == 0 else next(each for each in ranks if each != first)
    os.kill(killed, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode != 0
    assert all(map(_has_ended, ranks))
    assert "another rank has ended or cannot be reached: training stopped, the last whole checkpoint is" in err
    steps = max(_losses(folder)) + 3
    _train(work, 2, "--resume", "long", "--set", f"num_steps={steps}", "--allow-changes")
    assert max(_losses(folder)) == steps - 1


@pytest.mark.parametrize(
    ("change", "message", "code"),
    [
        ("recipe.batch_size=3", "error: the run cannot be spread like this", 2),
        pytest.param("recipe.optimizer.learning_rate=1e30", "is nan at step 1", 1, marks=pytest.mark.proof),
    ],
)
def test_what_all_ranks_meet_is_told_once(work, change, message, code):
    """A wrong question and a loss that is no number: one message, and the same exit code of each rank."""
    process = _start(work, 2, "run.toml", "--set", change)
    _, err = process.communicate(timeout=240)
    assert process.returncode == 1  # torchrun's own
    assert err.count(message) == 1
    assert re.findall(r"exitcode +: (-?\d+)", err) == [str(code)] * 2


@pytest.fixture
def crews(monkeypatch):
    """Two ranks in one process, with a store between them, and no patience."""
    from torch.distributed import HashStore

    from torchledger.trainer.process_group import Crew
    from torchledger.trainer.ranks import Ranks

    monkeypatch.setattr(torchrun, "_WORDS_S", 0.1)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    store = HashStore()
    return [Crew(Ranks(rank, 3), store) for rank in range(3)]


def test_what_a_rank_alone_meets_it_tells_itself(crews, capsys):
    """The first rank says its own; another rank is quiet with the same words, and says others with its number."""
    same, other = CheckpointError("no space left"), CheckpointError("the disk of this host is gone")
    assert [torchrun.tell_failure(crew, same, debug=False) for crew in crews[:2]] == [1, 1]
    assert capsys.readouterr().err == "error: no space left\n"
    assert torchrun.tell_failure(crews[2], other, debug=False) == 1
    assert capsys.readouterr().err == "rank 2: error: the disk of this host is gone\n"


def test_where_the_first_rank_is_gone_one_of_the_others_speaks(crews, capsys):
    """Each has lost it by other words of gloo's: one is told."""
    for crew, reason in zip(crews[1:], ("connection closed", "timed out"), strict=True):
        assert torchrun.tell_failure(crew, RankLost(reason, None), debug=False) == 1
    err = capsys.readouterr().err
    assert err.count("another rank has ended") == 1
    assert err.startswith("rank 1: error")


def test_ranks_without_a_torchrun_end_soon(monkeypatch):
    """Killed while its ranks were starting, torchrun answers none of them: they say so and do not try for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        for name, value in {**place, "RANK": "1", "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(torchrun, "_STORE_S", 1.0)
        begin = time.monotonic()
        with pytest.raises(Failed, match=r"torchrun cannot be reached at 127.0.0.1:\d+: it has ended"):
            torchrun.find_crew()
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize(("rank", "is_told"), [("0", True), ("1", False)])
def test_wrong_usage_is_told_by_the_first_rank(ask, monkeypatch, rank, is_told):
    """All ranks have the same words: each ends with exit code 2, and one says why."""
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", rank)
    answer = ask("train", "--bogus")
    assert answer.code == 2
    assert ("No such option" in answer.err) == is_told


def test_the_peak_of_a_replica_is_exact(work):
    """DDP adds up in place: the tensors of a rank of two are predicted to the byte."""
    _train(work, 2, "run.toml", "--out", "replicas")
    books = _books(work / "replicas")
    for quantity in ("step_flops", "peak_tensor_bytes", "communication_bytes"):
        assert books[quantity]["predicted"] == books[quantity]["measured"] > 0
