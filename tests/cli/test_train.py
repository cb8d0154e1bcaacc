import contextlib
import errno
import json
import math
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from torchledger.cli import closing, prediction
from torchledger.trainer.run_folder import NAMES, RunFolder


def test_the_books_of_a_run_close_exactly(ask, here):
    """FLOPs, tensor bytes and the allocator's peak are as predicted, to the last one; everything is in the folder."""
    answer = ask("train", "run.toml", "--json")
    assert answer.code == 0, answer.err
    rows = {row["quantity"]: row for row in answer.json["answer"]["differences"]}
    for quantity in ("step_flops", "peak_tensor_bytes", "peak_bytes"):
        assert rows[quantity]["predicted"] == rows[quantity]["measured"], quantity
        assert rows[quantity]["tolerance"] == 0
    assert rows["step_s"]["tolerance"] == 0.25
    assert rows["initial_loss"]["tolerance"] == 0.02
    folder = here / "runs" / "latest"
    written = {"config.toml", "metrics.jsonl", "ledger.json", "environment.json", "checkpoints", "report.html"}
    assert written <= {path.name for path in folder.iterdir()} <= {*NAMES, ".lock"}
    assert json.loads((folder / "ledger.json").read_text())["schema"] == "torchledger.ledger/1"


def test_compare_and_report_read_what_train_wrote(ask, here):
    """`compare` gives 0 or 4 by the tolerances alone; the measured ledger and the predicted one have the same FLOPs."""
    assert ask("train", "run.toml").code == 0
    compared = ask("compare", "runs/latest", "--json")
    beyond = [row for row in compared.json["answer"]["differences"] if row["within"] is False]
    assert compared.code == (4 if beyond else 0)
    ledgers = ask("compare", "runs/latest/ledger.json", "runs/latest/ledger-measured.json", "--json")
    assert ledgers.code == 0, ledgers.out
    assert ask("report", "runs/latest").code == 0


def test_a_dry_run_predicts_and_trains_nothing(ask, here):
    """Prediction and fit only: no run folder is made."""
    answer = ask("train", "run.toml", "--dry-run", "--json")
    assert answer.code == 0
    figures = answer.json["answer"]["prediction"]
    assert figures["num_steps"] == 6
    assert figures["num_tokens"] == 6 * 2 * 16
    assert figures["step_flops"] == sum(figures["flops_by_phase"].values())
    assert figures["peak_tensor_bytes"] == sum(figures["parts_bytes"].values())
    assert not (here / "runs").exists()


@pytest.fixture
def free(monkeypatch):
    """Say how much memory is free."""
    known = prediction.facts

    def say(free_bytes):
        monkeypatch.setattr(prediction, "facts", lambda device: replace(known(device), free_bytes=free_bytes))

    return say


def test_what_does_not_fit_is_exit_code_3_with_what_would(ask, here, free):
    """With less free memory than the peak, the answer names the mildest change that fits, and it does fit."""
    whole = ask("train", "run.toml", "--dry-run", "--json").json["answer"]["prediction"]["peak_bytes"]
    free(whole - 1)
    answer = ask("train", "run.toml")
    assert answer.code == 3
    assert "does not fit" in answer.err
    assert not (here / "runs").exists()
    assert "recipe.accumulation_steps=2 recipe.recompute=none fits" in answer.err
    told = int(re.search(r"fits: ([\d,]+) bytes", answer.err)[1].replace(",", ""))
    fitting = ask("train", "run.toml", "--dry-run", "--json", "--set", "recipe.accumulation_steps=2")
    assert fitting.code == 0
    assert fitting.json["answer"]["prediction"]["peak_bytes"] == told < whole
    assert ask("train", "run.toml", "--force").code == 0


def test_a_run_far_too_large_is_refused_without_taking_memory(ask, here, free):
    """Tensors of terabytes are exit code 3 and a least recipe, not a process that the system kills."""
    large = ("--set", "recipe.batch_size=65536", "--set", "recipe.sequence_length=512")
    text = "".join(f"line {number}: the quick brown fox jumps over the lazy dog\n" for number in range(2000))
    (here / "text.txt").write_text(text)
    assert ask("prepare", "text.txt", "--out", "data", "--tokenizer", "bytes", "--force").code == 0
    wide = (here / "tiny.toml").read_text().replace("hidden_size = 8", "hidden_size = 4096")
    (here / "wide.toml").write_text(wide)
    free(2**26)
    answer = ask("train", "run.toml", "--set", "model=wide.toml", *large)
    assert answer.code == 3, answer.err
    assert "does not fit" in answer.err


def test_a_loss_that_is_no_number_fails_with_the_last_good_checkpoint(ask, here):
    """Exit code 1, a message, no traceback."""
    answer = ask("train", "run.toml", "--set", "recipe.optimizer.learning_rate=1e30", "--set", "num_steps=20")
    assert answer.code == 1
    assert "training stopped" in answer.err
    assert "Traceback" not in answer.err


def test_interrupted_it_saves_and_says_how_to_go_on(ask, here):
    """Ctrl-C gives 130, SIGTERM 143; both name the command that goes on, and it ends with the bits of a whole run."""
    assert ask("train", "run.toml", "--out", "whole", "--set", "num_steps=40").code == 0
    for stop, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143)):
        folder = f"stopped-{code}"
        words = ("-m", "torchledger", "train", "run.toml", "--out", folder, "--set", "num_steps=40")
        process = subprocess.Popen(
            [sys.executable, *words], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=os.environ
        )
        lines = []
        for line in process.stderr:
            lines.append(line)
            if "saved" in line and process.poll() is None:
                process.send_signal(stop)
                break
        lines.append(process.communicate()[1])
        said = "".join(lines)
        assert process.returncode == code, said
        assert f"torchledger train --resume {folder}" in said
        assert ask("train", "--resume", folder).code == 0
        assert _losses(here / folder) == _losses(here / "whole")


def _losses(folder):
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(row["step"], row["loss"]) for row in rows if row["kind"] == "step"]


@pytest.mark.parametrize(
    ("words", "message"),
    [(("--temperature", "nan"), "temperature"), (("--prompt", "a\udcff"), "not UTF-8 from byte 2 on")],
)
def test_what_cannot_be_sampled_is_exit_code_2(ask, here, words, message):
    """A temperature that is no number and a prompt that is no text are refused by name."""
    answer = ask("sample", here, *words)
    assert answer.code == 2, answer.err
    assert message in answer.err


def test_killed_before_it_saved_a_run_begins_again(ask, here):
    """`--out` names `--resume`, which says that nothing was saved, begins at step 0 and gives the bits of a whole run.

    Checkpoints that are there and damaged are no reason to begin again.
    """
    assert ask("train", "run.toml", "--out", "whole").code == 0
    words = ("train", "run.toml", "--out", "mine", "--set", "checkpoint_interval=0", "--set", "num_steps=100000")
    process = subprocess.Popen(
        [sys.executable, "-m", "torchledger", *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    any("step " in line for line in process.stderr)
    process.kill()
    process.communicate()
    assert len(_losses(here / "mine")) > 0
    assert "torchledger train --resume mine begins it again" in ask("train", "run.toml", "--out", "mine").err
    answer = ask("train", "--resume", "mine", "--set", "num_steps=6", "--set", "eval_interval=3")
    assert answer.code == 0, answer.err
    assert "mine has saved nothing to go on from: it begins at step 0" in answer.err
    assert _losses(here / "mine") == _losses(here / "whole")
    assert ask("train", "--resume", "mine").code == 0  # it goes on from where it ended, by the configuration it ran by
    for path in (here / "mine" / "checkpoints").glob("step-*/manifest.json"):
        path.unlink()
    assert "no whole checkpoint" in (refused := ask("train", "--resume", "mine")).err
    assert refused.code == 1


@pytest.mark.parametrize(
    ("spread", "way"),
    [
        ("strategy.data_parallel=2 strategy.shard_level=3", "--set strategy.data_parallel=1"),
        (
            "strategy.data_parallel=4 strategy.shard_level=3 strategy.shard_group=2",
            "--set strategy.data_parallel=1 --set strategy.shard_group=0",
        ),
        (
            "strategy.tensor_parallel=2 strategy.sequence_parallel=true",
            "--set strategy.data_parallel=1 --set strategy.tensor_parallel=1 --set strategy.sequence_parallel=false",
        ),
    ],
)
def test_other_ranks_than_the_runs_are_refused_with_both_ways_on(ask, here, spread, way):
    """One process takes up no sharded run unasked: told are the command of all ranks, and what to set for one."""
    ranks = math.prod(int(each[-1]) for each in spread.split() if "_parallel=" in each and each[-1].isdigit())
    assert ask("train", "run.toml", "--out", "mine", "--set", "recipe.batch_size=4").code == 0
    config = (here / "mine" / "config.toml").read_text()
    given = "".join(f"{each.removeprefix('strategy.').replace('=', ' = ')}\n" for each in spread.split())
    kept = re.sub(r"(?ms)^\[strategy\]\n.*?(?=^\[|\Z)", "", config)
    (here / "mine" / "config.toml").write_text(f"{kept}\n[strategy]\n{given}")
    answer = ask("train", "--resume", "mine")
    assert answer.code == 2, answer.err
    told = " ".join(answer.err.split())
    assert f"spread over {ranks} ranks, and 1 runs" in told
    assert f"--nproc-per-node={ranks} -m torchledger train --resume {here / 'mine'}, or go on with 1" in told
    assert f"--allow-changes {way}" in told
    assert ask("train", "--resume", "mine", "--allow-changes", *way.split()).code == 0


def test_a_refusal_comes_before_anything_is_measured(ask, here, monkeypatch):
    """A folder that is taken, a changed run and another model are exit code 2 at once, not after a minute of probes."""
    assert ask("train", "run.toml", "--out", "mine").code == 0
    monkeypatch.setattr(prediction, "predict", lambda *_: pytest.fail("measured before refusing"))
    for words, message in (
        (("run.toml", "--out", "mine"), "has a run in it"),
        (("run.toml", "--out", "data"), "has tokenizer.json in it, and a run would write over it"),
        (("run.toml", "--out", "run.toml/mine"), "run.toml is a file"),
        (("--resume", "mine", "--set", "recipe.seed=7"), "recipe.seed"),
        (("--resume", "mine", "--set", "num_steps=9"), "num_steps: 6 in the checkpoint, 9 now"),
        (("--resume", "mine", "--set", "model.num_layers=3"), "of another model"),
    ):
        answer = ask("train", *words)
        assert answer.code == 2, answer.err
        assert message in answer.err
    for words in (("--resume", "mine"), ("run.toml", "--out", "mine")):
        with RunFolder(here / "mine").locked():
            answer = ask("train", *words)
        assert answer.code == 2
        assert f"right now (process {os.getpid()} on" in answer.err


def test_books_that_cannot_be_written_can_be_closed_later(ask, here, monkeypatch):
    """A disk that fills up after training costs the report, not the run: the message says how to close its books."""
    write, full = closing.write_text, OSError(errno.ENOSPC, "No space left on device")

    def refuse(path, text):
        if path.name == "report.html":
            raise full
        write(path, text)

    monkeypatch.setattr(closing, "write_text", refuse)
    answer = ask("train", "run.toml", "--out", "mine")
    assert answer.code == 1
    assert "No space left on device" in answer.err
    assert "torchledger train --resume" in answer.err
    monkeypatch.setattr(closing, "write_text", write)
    assert ask("train", "--resume", "mine").code == 0
    assert (here / "mine" / "report.html").is_file()


@contextlib.contextmanager
def full_disk(largest_bytes):
    """While inside, no file may grow beyond so many bytes: the system refuses, as it does when a disk is full."""
    resource = pytest.importorskip("resource", reason="only POSIX systems limit the size of files")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (largest_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def test_a_disk_that_is_full_for_checkpoints_ends_the_run_with_what_is_left(ask, here):
    """Exit code 1, no traceback; nothing half is left, and with space again the run can be begun and ends."""
    with full_disk(16_000):
        answer = ask("train", "run.toml", "--out", "mine")
    assert answer.code == 1, answer.err
    assert "cannot save" in answer.err
    assert "File too large" in answer.err
    assert "Traceback" not in answer.err
    assert [path.name for path in (here / "mine" / "checkpoints").iterdir()] == []


def test_a_disk_that_is_full_for_rows_names_the_way_on(ask, here):
    """Exit code 1; the last whole checkpoint and the command that goes on are named, and it goes on."""
    assert ask("train", "run.toml", "--out", "whole", "--set", "num_steps=40", "--set", "log_interval=40").code == 0
    assert ask("train", "run.toml", "--out", "mine", "--set", "num_steps=40", "--set", "eval_interval=0").code == 0
    folder = here / "mine"
    for path in (folder / "checkpoints").iterdir():
        if path.name == "step-00000040":
            path.rename(here / "away")
    rows = (folder / "metrics.jsonl").stat().st_size
    with full_disk(rows - 500):
        answer = ask("train", "--resume", "mine")
    assert answer.code == 1, answer.err
    assert "metrics.jsonl: File too large" in answer.err
    assert "step-00000038 is whole; once it can be written to, torchledger train --resume" in answer.err
    assert ask("train", "--resume", "mine").code == 0
    assert _losses(folder) == _losses(here / "whole")


def test_a_folder_that_may_only_be_read_is_exit_code_1(ask, here, monkeypatch):
    """A new run and a resumed one are refused with the reason before anything is trained."""
    assert ask("train", "run.toml", "--out", "mine").code == 0
    read_only = OSError(errno.EROFS, os.strerror(errno.EROFS))
    make, take = Path.mkdir, os.open

    def refuse_folder(self, *args, **options):
        if self.name == "other":
            raise read_only
        make(self, *args, **options)

    def refuse_lock(path, *args, **options):
        if str(path).endswith(".lock"):
            raise read_only
        return take(path, *args, **options)

    monkeypatch.setattr(Path, "mkdir", refuse_folder)
    monkeypatch.setattr(os, "open", refuse_lock)
    for words in (("run.toml", "--out", "other"), ("--resume", "mine")):
        answer = ask("train", *words)
        assert answer.code == 1, answer.err
        assert "Read-only file system" in answer.err
        assert "Traceback" not in answer.err


def test_a_deterministic_run_closes_its_books(ask, here):
    """The mode is on while the run is predicted, trained and measured; bytes and FLOPs are as predicted even so."""
    answer = ask("train", "run.toml", "--json", "--set", "deterministic=true")
    assert answer.code == 0, answer.err
    rows = {row["quantity"]: row for row in answer.json["answer"]["differences"]}
    for quantity in ("step_flops", "peak_tensor_bytes", "peak_bytes"):
        assert rows[quantity]["predicted"] == rows[quantity]["measured"], quantity
    assert not torch.are_deterministic_algorithms_enabled()
    folder = here / "runs" / "latest"
    assert json.loads((folder / "environment.json").read_text())["deterministic_algorithms"] is True
    answer = ask("train", "--resume", folder, "--set", "deterministic=false")
    assert answer.code == 2
    assert "numerics.deterministic" in answer.err


def test_questions_are_part_of_the_run(ask, here):
    """They are answered and told; a mistake in their file is exit code 2 with its line, before anything is measured."""
    (here / "q.jsonl").write_text('{"context": "the quick", "endings": ["brown fox", "green cat"], "label": 0}\n')
    answer = ask("train", "run.toml", "--set", "choices=q.jsonl")
    assert answer.code == 0, answer.err
    assert "1 questions, right" in answer.err
    (here / "q.jsonl").write_text('{"context": "the quick", "endings": ["brown fox"], "label": 0}\n')
    answer = ask("train", "run.toml", "--set", "choices=q.jsonl")
    assert answer.code == 2
    assert "line 1: endings must be a list of at least two texts" in answer.err


def test_the_end_tells_session_and_life_apart(ask, here):
    """In JSON both are counted, with MFU and HFU of the session's median step."""
    answer = ask("train", "run.toml", "--json")
    result = answer.json["answer"]["result"]
    assert result["session"]["num_steps"] == result["lifetime"]["num_steps"] == 6
    assert result["lifetime"]["num_tokens"] == 6 * 2 * 16
    assert 0 < result["mfu_causal"] < result["mfu"]
    assert result["hfu"] > 0
    assert "MFU counts contractions only" in answer.err


def test_a_model_that_learned_nothing_is_noticed(ask, here):
    """Six steps are not enough to get one nat below the unigram entropy, and the books say so."""
    answer = ask("train", "run.toml")
    assert f"not the {closing.LEARNED_NAT:.1f} below that shows learning" in " ".join(answer.out.split())
