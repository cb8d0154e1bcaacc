import random
from dataclasses import replace

import numpy as np
import pytest
import torch
from watched_runs import figures, names, resume, told

from torchledger.trainer.checkpoint import latest_checkpoint
from torchledger.trainer.errors import Nondeterministic, NonFinite, OutOfMemory
from torchledger.trainer.loop import new_run, resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.setup import resolve
from torchledger.trainer.step import TrainStep
from torchledger.trainer.utilization import Yardstick

pytestmark = pytest.mark.usefixtures("one_thread")


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
        return forward(self, batch, replace(share, main=share.main * factor) if at[0] in numbers else share)

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
