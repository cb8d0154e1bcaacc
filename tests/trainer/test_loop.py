import contextlib
import errno
import json
import os
import shutil
import signal
from dataclasses import replace
from itertools import pairwise

import pytest
from watched_runs import figures, names, resume, told

from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.errors import (
    CheckpointError,
    CheckpointMismatch,
    ResumeRefused,
    RunFolderError,
)
from torchledger.trainer.loop import begin_again, new_run, resume_point, train
from torchledger.trainer.manifest import Manifest
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.questions import ChoicesError
from torchledger.trainer.setup import resolve
from torchledger.trainer.tensorfile import write_tensors
from torchledger.trainer.tokenfile import TokenFileError
from torchledger.trainer.utilization import Yardstick

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_run_is_told_event_by_event(config, run):
    """Eight steps, an evaluation every third, a checkpoint every second, a last one of each, a text, the figures."""
    _, events = run(config)
    expected = "st st0 st1 sa2 st2 ev3 st3 sa4 st4 st5 ev6 sa6 st6 st7 ev8 sa8 sa8 fi8"
    assert " ".join(told(events)) == expected


def test_a_run_leaves_its_folder(config, run):
    """Configuration, environment, tokenizer, a row for every event, and as many checkpoints as are kept."""
    folder, events = run(config)
    assert folder.config() == resolve(config).config
    assert json.loads(folder.environment_path.read_text())["seed"] == 1337
    rows = read_metrics(folder.metrics_path)
    assert [row["kind"] for row in rows].count("step") == 8
    first = next(row for row in rows if row["kind"] == "step")
    assert {"loss", "tokens_per_s", "mfu", "learning_rate", "gradient_norm", "data_wait_s", "seconds"} <= first.keys()
    assert names(folder.checkpoints) == ["step-00000006", "step-00000008"]
    assert events[-1].checkpoint == latest_checkpoint(folder.checkpoints)


def test_two_runs_have_the_same_bits(config, run, tmp_path):
    """The same configuration twice gives the same losses, texts and weights, bit for bit."""
    a, b = (run(config, tmp_path / name)[0] for name in "ab")
    assert figures(a) == figures(b)
    last = "step-00000008/weights.safetensors"
    assert (a.checkpoints / last).read_bytes() == (b.checkpoints / last).read_bytes()


def test_evaluating_and_saving_change_no_training_loss(config, run, tmp_path):
    """Training losses are the same however often the run is evaluated and saved."""
    often, never = (run(replace(config, eval_interval=n, checkpoint_interval=n), tmp_path / str(n))[0] for n in (1, 0))
    losses = [[v for (kind, _), v in figures(folder).items() if kind == "step"] for folder in (often, never)]
    assert losses[0] == losses[1]


def test_accumulation_is_one_large_batch(config, run, tmp_path):
    """Losses with 4 micro-batches are those of one batch up to rounding, and both count the same tokens."""
    folders, events = zip(
        *(run(replace(config, recipe=replace(config.recipe, accumulation_steps=n)), tmp_path / str(n)) for n in (1, 4)),
        strict=True,
    )
    one, four = (list(figures(folder).items()) for folder in folders)
    assert [v for (k, _), v in one if k == "step"] == pytest.approx([v for (k, _), v in four if k == "step"], rel=1e-4)
    per_second = [[e.tokens_per_s * e.seconds for e in each if type(e).__name__ == "Step"] for each in events]
    assert per_second[0] == pytest.approx([4 * 16] * 8)
    assert per_second[1] == pytest.approx([4 * 16] * 8)


@pytest.mark.parametrize("stop_after", [1, 2, 5, 7])
def test_resumed_is_uninterrupted(config, run, tmp_path, stop_after, tiny):
    """Abandoned after any step and resumed, with dropout, bf16 and accumulation: the figures of the whole run."""
    config = replace(
        config,
        model=replace(tiny, attention=replace(tiny.attention, dropout=0.1)),
        recipe=replace(config.recipe, accumulation_steps=2, precision="bf16", attention="math"),
        checkpoint_interval=1,
    )
    whole, _ = run(config, tmp_path / "whole")
    setup = resolve(config)
    folder = new_run(setup, tmp_path / "parts")
    events = train(setup, folder)
    while f"sa{stop_after}" not in told([next(events)]):
        pass
    events.close()
    assert resume(folder)[0].first_step == stop_after
    assert figures(folder) == figures(whole)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_saves_and_says_where(config, run, tmp_path, number):
    """Ctrl-C and SIGTERM end the run after the step at hand, with a checkpoint from which it goes on unchanged."""
    whole, _ = run(config, tmp_path / "whole")
    setup = resolve(config)
    folder = new_run(setup, tmp_path / "stopped")
    events = []
    for event in train(setup, folder):
        events.append(event)
        if told([event]) == ["st4"]:
            os.kill(os.getpid(), number)
    last = events[-1]
    assert told(events)[-3:] == ["st4", "sa5", "in5"]
    assert (last.signal, last.checkpoint) == (number, folder.checkpoints / "step-00000005")
    resume(folder)
    assert figures(folder) == figures(whole)


def test_questions_are_answered_with_each_evaluation(config, run, tmp_path):
    """Three evaluations, three answers, each in a row; training losses are those of a run that is asked nothing."""
    path = tmp_path / "questions.jsonl"
    row = {"context": "line 3 of", "endings": ["text", "cake"], "label": 0}
    path.write_text(f"{json.dumps(row)}\n" * 4)
    folder, events = run(replace(config, choices=path), tmp_path / "asked")
    answers = [event for event in events if type(event).__name__ == "Answered"]
    assert [(event.step, event.num_questions, event.chance) for event in answers] == [(n, 4, 0.5) for n in (3, 6, 8)]
    rows = [row for row in read_metrics(folder.metrics_path) if row["kind"] == "choices"]
    assert [row["accuracy"] for row in rows] == [event.accuracy for event in answers]
    plain, _ = run(config, tmp_path / "plain")
    assert [v for (k, _), v in figures(folder).items() if k == "step"] == [
        v for (k, _), v in figures(plain).items() if k == "step"
    ]


def test_questions_that_are_none_stop_before_anything_begins(config, tmp_path):
    """A missing file is told by `resolve`, not at the first evaluation."""
    with pytest.raises(ChoicesError, match="No such file"):
        resolve(replace(config, choices=tmp_path / "none.jsonl"))


def test_a_full_disk_keeps_the_previous_checkpoint(config, monkeypatch):
    """When the third save fails for want of space, the run stops with an error and the second is whole."""
    setup = resolve(config)
    folder = new_run(setup)
    saved = []

    def full(*args):
        saved.append(1)
        if len(saved) == 2 * 2 + 1:  # two files of tensors a checkpoint
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write_tensors(*args)

    monkeypatch.setattr("torchledger.trainer.stored.write_tensors", full)
    with pytest.raises(CheckpointError, match=r"step-00000006: No space left on device; .*step-00000004 is whole"):
        list(train(setup, folder))
    assert names(folder.checkpoints) == ["step-00000002", "step-00000004"]


def test_another_models_checkpoint_is_refused(config, run, tmp_path, tiny):
    """Going on from a checkpoint of another model names the fields that differ."""
    folder, _ = run(config, tmp_path / "a")
    other = resolve(replace(config, model=replace(tiny, hidden_size=64)))
    with pytest.raises(CheckpointMismatch, match=r"spec\.hidden_size: 32 in the checkpoint, 64 now"):
        list(train(other, new_run(other, tmp_path / "b"), checkpoint=resume_point(folder)))


def test_what_would_change_bits_is_refused_unless_allowed(config, run, tmp_path):
    """Another seed, horizon or thread count stops a resume; allowed, each is warned of and the run goes on."""
    folder, _ = run(config, tmp_path / "a")
    recipe = replace(config.recipe, seed=7)
    changed = resolve(replace(config, recipe=recipe, num_steps=10, num_threads=2))
    with pytest.raises(ResumeRefused) as caught:
        list(train(changed, folder, checkpoint=resume_point(folder)))
    for field in ("recipe.seed", "recipe.num_tokens", "numerics.num_threads: 1 in the checkpoint, 2 now"):
        assert field in str(caught.value)
    events = list(train(changed, folder, checkpoint=resume_point(folder), allow_changes=True))
    assert [type(event).__name__ for event in events[:4]] == ["Started", "Warned", "Warned", "Warned"]
    assert events[-1].step == 10
    assert folder.config() == changed.config
    assert told(resume(folder))[-1] == "fi10"


def test_an_id_beyond_the_vocabulary_stops_before_the_device_sees_it(config, data_folder, tmp_path, monkeypatch):
    """Where a token file is too large to read through first, a wrong id is found as it is used, with its position."""
    monkeypatch.setattr("torchledger.trainer.run_data.VERIFIED_BYTES", 0)
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in data_folder.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    content = bytearray((copy / "train.tokens").read_bytes())
    content[4096:] = content[4096:].replace(b"l\x00i\x00", b"l\x00\xe8\x03")  # 1000 for every i of "line"
    (copy / "train.tokens").write_bytes(content)
    setup = resolve(replace(config, data=copy))
    with pytest.raises(TokenFileError, match=r"token id 1,000 at position .* beyond its vocabulary of 257"):
        list(train(setup, new_run(setup)))


def test_a_finished_run_resumed_has_nothing_left_to_do(config, run):
    """Resuming at the end does nothing twice, writes no row, and tells the same figures, its pace included."""
    folder, events = run(config)
    rows = read_metrics(folder.metrics_path)
    again = resume(folder)
    assert told(again) == ["st", "fi8"]
    assert read_metrics(folder.metrics_path) == rows
    for figure in ("initial_loss", "final_loss", "validation_loss", "step_s", "tokens_per_s", "checkpoint"):
        assert getattr(again[-1], figure) == getattr(events[-1], figure), figure


def test_one_checkpoint_too_many_goes_at_the_next_start(config, run):
    """A kill between saving a checkpoint and deleting an old one leaves no more than are kept once it goes on."""
    folder, _ = run(config)
    old = folder.checkpoints / "step-00000004"
    shutil.copytree(folder.checkpoints / "step-00000006", old)
    (old / "manifest.json").write_text(replace(Manifest.read(old), step=4).to_json())
    resume(folder)
    assert names(folder.checkpoints) == ["step-00000006", "step-00000008"]


def test_two_trainers_in_one_folder_are_refused(config):
    """While one trains, another in the same folder is refused."""
    setup = resolve(config)
    folder = new_run(setup)
    with contextlib.closing(train(setup, folder)) as first:
        next(first)
        with pytest.raises(
            RunFolderError, match=rf"another process is training in .* \(process {os.getpid()} on .*since 20"
        ):
            next(train(setup, folder))


def test_nothing_to_resume_is_told(config):
    """A run whose checkpoints are gone or damaged has to begin anew, and the error says so."""
    folder = new_run(resolve(config))
    (folder.checkpoints / "step-00000002").mkdir(parents=True)
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in .* begin a new run"):
        resume_point(folder)


def test_a_config_alone_is_no_run_to_begin_again(config):
    """A run leaves more than its `config.toml`, which may be somebody's own: it is not written over."""
    folder = new_run(resolve(config))
    folder.environment_path.unlink()
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in .* begin a new run"):
        resume_point(folder)


def test_killed_before_it_saved_a_run_begins_again_with_the_same_bits(config, tmp_path):
    """There is no point to resume at: step 0 it is, by its own configuration; no row of the lost steps is left."""
    setup = resolve(config)
    whole, folder = new_run(setup, tmp_path / "whole"), new_run(setup, tmp_path / "killed")
    list(train(setup, whole))
    with contextlib.closing(train(setup, folder)) as begun:
        for event in begun:
            if type(event).__name__ == "Step":
                break
    assert folder.metrics_path.stat().st_size > 0
    assert resume_point(folder) is None
    again = resolve(folder.config())
    begin_again(again, folder)
    list(train(again, folder))
    rows = [
        [(row["step"], row["loss"]) for row in read_metrics(each.metrics_path) if row["kind"] == "step"]
        for each in (whole, folder)
    ]
    assert rows[0] == rows[1]


def test_mfu_is_flops_over_seconds_and_peak(config, run):
    """MFU is what it says, and unknown where the FLOPs or the peak are; above 1 it is warned of, once."""
    _, events = run(config, yardstick=Yardstick(model_flops=1e6, peak_flops_per_s=1e15))
    steps = [event for event in events if type(event).__name__ == "Step"]
    assert [e.mfu * e.seconds for e in steps] == pytest.approx([1e6 / 1e15] * 8)
    assert events[-1].mfu * events[-1].step_s == pytest.approx(1e6 / 1e15)


def test_an_impossible_mfu_is_warned_of_once(config, run):
    """More than the peak means a wrong denominator: one warning says so."""
    _, events = run(config, yardstick=Yardstick(model_flops=1e12, peak_flops_per_s=1.0))
    warnings = [event.message for event in events if type(event).__name__ == "Warned"]
    assert len(warnings) == 1
    assert "above 1: the peak it is measured against is too low" in warnings[0]


def test_the_figures_of_the_end(config, run):
    """Medians leave the warm-up out; the first and the last loss are the first and the last step's."""
    _, events = run(config)
    steps = [event for event in events if type(event).__name__ == "Step"]
    end = events[-1]
    assert [step.warm_up for step in steps] == [True] * 3 + [False] * 5
    assert end.step_s == sorted(step.seconds for step in steps[3:])[2]
    assert (end.initial_loss, end.final_loss) == (steps[0].loss, steps[-1].loss)
    assert end.session.training_s == pytest.approx(sum(step.seconds for step in steps))
    assert steps[-1].remaining_s == 0
    assert all(a.epoch < b.epoch for a, b in pairwise(steps))


def test_a_run_learns(config, run):
    """Forty steps on text of few patterns bring the loss well below that of the first."""
    _, events = run(replace(config, num_steps=40))
    assert events[-1].validation_loss < events[-1].initial_loss - 1.5
