import math
import random

import pytest

from torchledger.trainer.spikes import LEAST_HISTORY, THRESHOLD, WINDOW, SpikeWatch, robust_score

CALM = [2.0 + 0.01 * (i % 5) for i in range(64)]  # median 2.02, median absolute deviation 0.01


def test_the_score_is_deviations_above_the_median():
    """(2.1 - 2.02) / (1.4826 · 0.01) = 5.4; below the median it is negative."""
    assert robust_score(2.1, CALM) == pytest.approx(0.08 / (1.4826 * 0.01))
    assert robust_score(1.9, CALM) == pytest.approx(-0.12 / (1.4826 * 0.01))


def test_too_few_values_give_no_score():
    """Thirty-one values say nothing, thirty-two do."""
    assert robust_score(9.0, CALM[: LEAST_HISTORY - 1]) is None
    assert robust_score(9.0, CALM[:LEAST_HISTORY]) is not None


def test_a_loss_that_does_not_move_makes_no_spike_of_its_last_digits():
    """Where nothing scatters, a thousandth of the median counts as scatter."""
    assert robust_score(2.001, [2.0] * 64) == pytest.approx(0.001 / 0.002)


def test_spikes_among_the_values_before_do_not_hide_one():
    """A third of the values at 20 shifts a mean and a deviation; the median stays, and 20 is still a spike."""
    spoiled = [20.0 if i % 3 == 0 else value for i, value in enumerate(CALM)]
    assert robust_score(20.0, spoiled) > THRESHOLD


def test_a_spike_is_told_once_where_it_begins():
    """Three high losses in a row are one spike; a second rise after a calm step is another."""
    watch = SpikeWatch(CALM)
    said = [watch.judge(value).begins for value in (2.0, 9.0, 8.0, 7.0, 2.0, 9.0)]
    assert said == [False, True, False, False, False, True]


def test_what_is_told_of_a_spike():
    """The score and the median of the steps before."""
    verdict = SpikeWatch(CALM).judge(9.0)
    assert verdict.usual == pytest.approx(2.02)
    assert verdict.score == pytest.approx((9 - 2.02) / (1.4826 * 0.01))


def test_a_watch_is_a_window_of_robust_scores():
    """Of values that scatter now more, now less, spikes begin where the score among the last 128 passes 6."""
    chance = random.Random(2)
    values = [
        round(chance.gauss(3, chance.choice((0.001, 0.1))) * chance.choice((1,) * 20 + (3,)), 2) for _ in range(600)
    ]
    watch, was_high, begun = SpikeWatch(), False, 0
    for number, value in enumerate(values):
        score = robust_score(value, values[max(0, number - WINDOW) : number])
        is_high = score is not None and score > THRESHOLD
        verdict = watch.judge(value)
        assert verdict.begins == (is_high and not was_high)
        assert verdict.score == (score if verdict.begins else None)
        was_high, begun = is_high, begun + verdict.begins
    assert begun > 5


def test_a_falling_loss_and_a_noisy_one_are_no_spikes():
    """Two thousand steps of a usual curve, noise of a twentieth: nothing is told."""
    chance = random.Random(0)
    watch = SpikeWatch()
    curve = [2 + 8 / math.sqrt(1 + step / 20) for step in range(2000)]
    assert not any(watch.judge(loss * (1 + chance.gauss(0, 0.05))).begins for loss in curve)


def test_factors_count_for_gradient_norms():
    """Norms scatter by factors: twice as much among norms from 0.5 to 2 is nothing, a hundred times is a spike."""
    chance = random.Random(0)
    norms = [2 ** chance.uniform(-1, 1) for _ in range(WINDOW)]
    assert not SpikeWatch(norms, logarithmic=True).judge(4.0).begins
    found = SpikeWatch(norms, logarithmic=True).judge(100.0)
    assert found.begins
    assert found.usual == pytest.approx(sorted(norms)[WINDOW // 2], rel=0.1)


def test_no_number_is_no_spike_and_leaves_no_trace():
    """Infinity, not a number and nothing at all are counted elsewhere; the next value is judged as without them."""
    with_gaps, without = SpikeWatch(CALM), SpikeWatch(CALM)
    for value in (math.inf, math.nan, None):
        assert not with_gaps.judge(value).begins
    assert with_gaps.judge(2.05) == without.judge(2.05)


def test_a_resumed_watch_judges_as_the_uninterrupted_one():
    """Two windows of earlier values are enough to go on alike, also within a spike."""
    chance = random.Random(1)
    values = [chance.gauss(3, 0.1) for _ in range(3 * WINDOW)] + [9.0]
    whole, resumed = SpikeWatch(values), SpikeWatch(values[-2 * WINDOW :])
    for value in (9.5, 3.0, 9.0, 3.1):
        assert whole.judge(value) == resumed.judge(value)
