import contextlib
import errno
import json
import os
import random
import shutil
import signal
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.errors import (
    CheckpointError,
    CheckpointMismatch,
    Nondeterministic,
    NonFinite,
    OutOfMemory,
    ResumeRefused,
    RunFolderError,
)
from torchledger.trainer.loop import new_run, resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.questions import ChoicesError
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import TrainStep
from torchledger.trainer.tensorfile import write_tensors
from torchledger.trainer.tokenfile import TokenFileError
from torchledger.trainer.utilization import Yardstick

pytestmark = pytest.mark.usefixtures("one_thread")


def names(folder):
    """What is in a folder, hidden things too."""
    return sorted(path.name for path in folder.iterdir())


def told(events):
    """What was told, in order: s3 is step 3, e3 the evaluation after three updates."""
    return [f"{type(e).__name__[:2].lower()}{getattr(e, 'step', '')}" for e in events]


def figures(folder):
    """Every loss and text of a run by kind and step, without the times."""
    return {
        (row["kind"], row["step"]): row.get("loss", row.get("validation_loss", row.get("text")))
        for row in read_metrics(folder.metrics_path)
        if row["kind"] != "checkpoint"
    }


def resume(folder, **options):
    setup = resolve(folder.config())
    return list(train(setup, folder, checkpoint=resume_point(folder), **options))


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


@pytest.fixture
def before_step(monkeypatch):
    """Do something to the model right before a given step."""

    def before_step(number, act):
        original = TrainStep.__call__

        def call(self, batches, step, may_update=None):
            if step == number:
                act(self.model)
            return original(self, batches, step, may_update)

        monkeypatch.setattr(TrainStep, "__call__", call)

    return before_step


@torch.no_grad()
def poison(model):
    model.final_norm.weight[0] = torch.inf


def test_a_loss_that_is_no_number_stops_and_names_the_checkpoint(config, before_step):
    """NaN ends the run at its step; the row is written, nothing is saved after it, the last good one is named."""
    before_step(5, poison)
    setup = resolve(config)
    folder = new_run(setup)
    with pytest.raises(NonFinite, match=r"the loss is nan at step 5: .* checkpoint is .*step-00000004") as caught:
        list(train(setup, folder))
    assert caught.value.step == 5
    assert read_metrics(folder.metrics_path)[-1]["loss"] is None
    assert latest_checkpoint(folder.checkpoints) == folder.checkpoints / "step-00000004"


def test_after_a_bad_step_the_run_goes_on_from_the_good_checkpoint(config, run, tmp_path, before_step):
    """Once the cause is gone, the stopped run resumes and gives the bits of one that never failed."""
    whole, _ = run(config, tmp_path / "whole")
    setup = resolve(config)
    folder = new_run(setup, tmp_path / "failed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", _failing(5))
        with pytest.raises(NonFinite):
            list(train(setup, folder))
    resume(folder)
    assert figures(folder) == figures(whole)


def _failing(number):
    original = TrainStep.__call__

    def call(self, batches, step, may_update=None):
        if step == number:
            poison(self.model)
        return original(self, batches, step, may_update)

    return call


def spoil(monkeypatch, *numbers, factor=torch.nan):
    """Multiply the losses of these steps before their gradients are taken."""
    call, forward, at = TrainStep.__call__, TrainStep._forward_backward, []

    def begin(self, batches, step, may_update=None):
        at[:] = [step]
        return call(self, batches, step, may_update)

    def spoiled(self, batch, share):
        return forward(self, batch, share * factor if at[0] in numbers else share)

    monkeypatch.setattr(TrainStep, "__call__", begin)
    monkeypatch.setattr(TrainStep, "_forward_backward", spoiled)


def test_a_step_that_is_no_number_changes_nothing(config, run, tmp_path, monkeypatch):
    """With patience for three, two bad steps are skipped, told and counted, and weights stay as they were."""
    config = replace(config, max_non_finite=3, checkpoint_interval=1, keep=9)
    spoil(monkeypatch, 4, 5)
    folder, events = run(config)
    before, after = ((folder.checkpoints / f"step-{step:08d}" / "weights.safetensors").read_bytes() for step in (4, 6))
    assert before == after
    rows = [row for row in read_metrics(folder.metrics_path) if row["kind"] == "step"]
    assert [row["step"] for row in rows if row["skipped"]] == [4, 5]
    assert [row["loss"] for row in rows if row["skipped"]] == [None, None]
    warnings = [event for event in events if type(event).__name__ == "Warned"]
    assert [event.step for event in warnings] == [5, 6]
    assert "2 in a row, training stops at 3" in warnings[1].message
    end = events[-1]
    assert (end.session.num_steps, end.session.num_skipped, end.lifetime.num_skipped) == (8, 2, 2)


def test_too_many_bad_steps_in_a_row_stop(config, monkeypatch):
    """With patience for two, one bad step is passed over and the second in a row ends the run, also after a resume."""
    spoil(monkeypatch, 2, 4, 5)
    setup = resolve(replace(config, max_non_finite=2, checkpoint_interval=1))
    folder = new_run(setup)
    with pytest.raises(NonFinite, match=r"step 5, the 2\. such step in a row: .* checkpoint is .*step-00000005"):
        list(train(setup, folder))
    with pytest.raises(NonFinite, match="step 5, the 2"):
        list(train(setup, folder, checkpoint=resume_point(folder)))


def test_skipped_steps_resume_bit_for_bit(config, run, tmp_path, monkeypatch):
    """A run with bad steps, abandoned between two of them and resumed, has the figures of the uninterrupted one."""
    spoil(monkeypatch, 3, 4)
    config = replace(config, max_non_finite=3, checkpoint_interval=1)
    whole, _ = run(config, tmp_path / "whole")
    setup = resolve(config)
    folder = new_run(setup, tmp_path / "parts")
    events = train(setup, folder)
    while "sa4" not in told([next(events)]):
        pass
    events.close()
    resume(folder)
    assert figures(folder) == figures(whole)


def test_weights_that_are_no_numbers_are_never_saved(config, monkeypatch):
    """Without clipping no norm tells of bad gradients; what they did to the weights is seen before these are saved."""
    setup = resolve(
        replace(
            config,
            recipe=replace(config.recipe, optimizer=replace(config.recipe.optimizer, gradient_clip=0.0)),
            checkpoint_interval=3,
        )
    )
    call = TrainStep._update

    def update(self, step):
        call(self, step)
        if step == 5:
            poison(self.model)

    monkeypatch.setattr(TrainStep, "_update", update)
    folder = new_run(setup)
    with pytest.raises(NonFinite, match=r"the weights are not all finite at step 5: .*step-00000003"):
        list(train(setup, folder))
    assert names(folder.checkpoints) == ["step-00000003"]


def test_a_spike_is_told_and_nothing_rolled_back(config, run, tmp_path, monkeypatch):
    """A loss ten times as large is one event with the checkpoint before it; steps go on, a resume tells the same."""
    spoil(monkeypatch, 50, factor=10)
    config = replace(config, num_steps=60, checkpoint_interval=20, eval_interval=0)
    folder, events = run(config, tmp_path / "whole")
    spikes = [event for event in events if type(event).__name__ == "Spiked" and event.quantity == "loss"]
    assert [event.step for event in spikes] == [50]
    assert spikes[0].checkpoint.name == "step-00000040"
    assert spikes[0].value > 5 * spikes[0].usual
    assert events[-1].session.num_spikes >= 1
    assert events[-1].step == 60
    (folder.checkpoints / "step-00000060").rename(tmp_path / "away")
    resume(folder)
    rows = [row for row in read_metrics(folder.metrics_path) if row["kind"] == "spike" and row["quantity"] == "loss"]
    assert [(row["step"], row["value"]) for row in rows] == [(50, spikes[0].value)]


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


def test_deterministic_mode_gives_the_same_losses_and_refuses_what_does_not_repeat(config, run, tmp_path, before_step):
    """On a CPU the mode changes no bit; an operation without a deterministic way ends the run by its name."""
    fixed = replace(config, deterministic=True)
    a, b = (figures(run(each, tmp_path / name)[0]) for each, name in ((config, "a"), (fixed, "b")))
    assert a == b
    assert not torch.are_deterministic_algorithms_enabled()
    before_step(3, lambda model: model.head.weight.data.put_(torch.tensor([0]), torch.tensor([0.0])))
    with pytest.raises(Nondeterministic, match=r"put_ does not have a deterministic implementation.*step 3"):
        run(fixed, tmp_path / "c")


def test_what_others_draw_from_global_generators_repeats_after_a_resume(config, run, tmp_path, before_step):
    """A layer that draws from NumPy and Python draws the same in a resumed run, whatever evaluations drew."""
    config = replace(config, checkpoint_interval=1)
    drawn = {}

    def draw(step):
        drawn.setdefault(step, set()).add((random.random(), np.random.rand(), torch.rand(1).item()))  # noqa: NPY002

    for step in range(8):
        before_step(step, lambda _model, step=step: draw(step))
    run(config, tmp_path / "whole")
    setup = resolve(replace(config, eval_interval=1))
    folder = new_run(setup, tmp_path / "parts")
    events = train(setup, folder)
    while "sa5" not in told([next(events)]):
        pass
    events.close()
    resume(folder)
    assert [len(drawn[step]) for step in range(8)] == [1] * 8


def test_no_memory_left_says_at_which_step(config, before_step):
    """An allocator that refuses is told as such, with the step and the bytes it was asked for."""
    before_step(3, lambda _model: torch.empty(2**50, dtype=torch.uint8))
    setup = resolve(config)
    with pytest.raises(OutOfMemory, match=f"at step 3 when {2**50:,} more bytes"):
        list(train(setup, new_run(setup)))


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
    shutil.copytree(folder.checkpoints / "step-00000006", folder.checkpoints / "step-00000004")
    manifest = folder.checkpoints / "step-00000004" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"step": 6', '"step": 4'))
    resume(folder)
    assert names(folder.checkpoints) == ["step-00000006", "step-00000008"]


def test_two_trainers_in_one_folder_are_refused(config):
    """While one trains, another in the same folder is refused."""
    setup = resolve(config)
    folder = new_run(setup)
    with contextlib.closing(train(setup, folder)) as first:
        next(first)
        with pytest.raises(RunFolderError, match="another process is training"):
            next(train(setup, folder))


def test_nothing_to_resume_is_told(config):
    """A run that was killed before its first checkpoint has to begin anew, and the error says so."""
    with pytest.raises(CheckpointError, match=r"no whole checkpoint in .* begin a new run"):
        resume_point(new_run(resolve(config)))


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


def test_an_odd_start_does_not_hide_an_impossible_mfu(config, run, before_step):
    """Both are told."""
    before_step(0, lambda model: model.head.weight.data.mul_(1000))
    _, events = run(config, yardstick=Yardstick(model_flops=1e12, peak_flops_per_s=1.0))
    warnings = [event.message for event in events if type(event).__name__ == "Warned"]
    assert any("ln(vocabulary)" in each for each in warnings)
    assert any("above 1" in each for each in warnings)


def test_an_unusual_first_loss_is_warned_of(config, run, before_step):
    """A first loss far from ln(vocabulary) is told with both numbers."""
    before_step(0, lambda model: model.head.weight.data.mul_(1000))
    _, events = run(config)
    warnings = [event.message for event in events if type(event).__name__ == "Warned"]
    assert "not within 2 % of ln(vocabulary) = 5.5491" in warnings[0]


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
