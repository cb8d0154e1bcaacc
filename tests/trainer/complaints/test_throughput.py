"""What people complain of in tokens per second and MFU: wrong by a factor, with something else in it, unnamed."""

import time
from dataclasses import replace

import pytest

from torchledger.formula import count, num_parameters
from torchledger.trainer import session
from torchledger.trainer.loop import resume_point, train
from torchledger.trainer.metrics import read_metrics
from torchledger.trainer.setup import resolve
from torchledger.trainer.utilization import Yardstick

pytestmark = pytest.mark.usefixtures("one_thread")


def steps(events):
    return [event for event in events if type(event).__name__ == "Step"]


@pytest.mark.parametrize("accumulation_steps", [1, 4])
def test_tokens_are_counted_where_they_are_trained_on(config, run, accumulation_steps):
    """Eight steps of 4 x 16 tokens are 512, in one micro-batch or four (nanochat #177)."""
    recipe = replace(config.recipe, accumulation_steps=accumulation_steps)
    _, events = run(replace(config, recipe=recipe))
    assert events[-1].lifetime.num_tokens == sum(event.num_tokens for event in steps(events)) == 8 * 4 * 16
    assert all(event.tokens_per_s * event.seconds == pytest.approx(64) for event in steps(events))


def test_a_resumed_session_counts_its_own_steps(config, run):
    """Tokens per second after a resume are of the two steps done since, not of all eight (transformers #41156)."""
    folder, events = run(config)
    (folder.checkpoints / "step-00000008").rename(folder.path / "away")
    again = list(train(resolve(folder.config()), folder, checkpoint=resume_point(folder)))
    end = again[-1]
    assert (end.session.num_steps, end.session.num_tokens) == (2, 2 * 64)
    assert (end.lifetime.num_steps, end.lifetime.num_tokens) == (8, 8 * 64)
    assert end.session.training_s == pytest.approx(sum(event.seconds for event in steps(again)))
    first_six = sum(event.seconds for event in steps(events)[:6])
    assert end.lifetime.training_s == pytest.approx(first_six + end.session.training_s)


def test_the_summary_divides_by_time_spent_and_no_clock(config, run):
    """Tokens per second at the end are those of the median step (litgpt told 7.62 of 2,263)."""
    _, events = run(config)
    end = events[-1]
    assert end.tokens_per_s * end.step_s == pytest.approx(64)
    rates = [event.tokens_per_s for event in steps(events) if not event.warm_up]
    assert min(rates) <= end.tokens_per_s <= max(rates)


def test_evaluating_and_saving_are_in_no_steps_time(config, run, monkeypatch):
    """Evaluations and checkpoints of 0.2 s each leave the time of the steps around them (nanoGPT: 163 for 37 ms)."""
    slow = {"evaluate": session.evaluate, "check_loss": session.check_loss}
    for name, original in slow.items():
        monkeypatch.setattr(session, name, lambda *a, original=original, **k: time.sleep(0.2) or original(*a, **k))
    begin = time.perf_counter()
    _, events = run(config)
    assert time.perf_counter() - begin > 7 * 0.2, "three evaluations and four checkpoints were slow"
    assert events[-1].session.training_s < events[-1].wall_s - 7 * 0.2


def test_warm_up_is_told_and_in_no_average(config, run):
    """The first three steps are marked, and the median is of the other five (alpa #823)."""
    _, events = run(config)
    late = sorted(event.seconds for event in steps(events)[3:])
    assert [event.warm_up for event in steps(events)] == [True] * 3 + [False] * 5
    assert events[-1].step_s == late[2]


def test_mfu_and_hfu_are_told_with_their_convention(config, run):
    """A step has both, the end has causal MFU besides, and the start says what they are (torchtitan #452)."""
    told = "MFU counts contractions only; of 1 PFLOP/s"
    yardstick = Yardstick(3e6, 2e6, 4e6, 1e15, told)
    folder, events = run(config, yardstick=yardstick)
    assert events[0].convention == told
    end = events[-1]
    assert end.hfu / end.mfu == pytest.approx(4 / 3)
    assert end.mfu_causal / end.mfu == pytest.approx(2 / 3)
    row = next(row for row in read_metrics(folder.metrics_path) if row["kind"] == "step")
    assert row["hfu"] / row["mfu"] == pytest.approx(4 / 3)


def test_a_tied_head_saves_parameters_and_no_flops(config, tiny):
    """The head's matmul is done either way; its 257 x 32 weights are counted once (torchtitan #3225)."""
    recipe = config.recipe
    tied = replace(tiny, tied_embeddings=True)
    assert count(tied, recipe).flops == count(tiny, recipe).flops
    assert num_parameters(tiny) - num_parameters(tied) == 257 * 32
