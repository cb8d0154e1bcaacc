"""`train` as torchrun starts it: two processes, one run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

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


def _go_back(folder: Path, step: int) -> None:
    """Take the checkpoints after a step away, so that a resumed run has steps to do."""
    for path in (folder / "checkpoints").glob("step-*"):
        if int(path.name.removeprefix("step-")) > step:
            shutil.rmtree(path)


def test_a_signal_to_one_rank_stops_all_at_the_same_step(work):
    """Rank 0 alone gets SIGTERM: both finish the step, save together, and end; the run goes on from there."""
    (work / "run.toml").write_text(RUN.format(steps=100_000))
    process = _start(work, 2, "run.toml", "--out", "long")
    try:
        metrics = work / "long" / "metrics.jsonl"
        for _ in range(1200):
            if process.poll() is not None or (metrics.exists() and '"step": 3' in metrics.read_text()):
                break
            time.sleep(0.1)
        assert process.poll() is None
        environment = json.loads((work / "long/environment.json").read_text())
        os.kill(environment["system"]["process_id"], signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode != 0
    assert "stopped after step" in err
    done = max(_losses(work / "long")) + 1
    assert (work / "long/checkpoints" / f"step-{done:08d}" / "manifest.json").is_file()


def test_the_peak_of_a_replica_is_exact(work):
    """DDP adds up in place: the tensors of a rank of two are predicted to the byte."""
    _train(work, 2, "run.toml", "--out", "replicas")
    books = _books(work / "replicas")
    for quantity in ("step_flops", "peak_tensor_bytes", "communication_bytes"):
        assert books[quantity]["predicted"] == books[quantity]["measured"] > 0
