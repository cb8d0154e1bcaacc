import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.spec import OptimizerSpec
from torchledger.trainer.schedule import learning_rate


def test_warm_up_climbs_in_equal_steps_to_the_full_rate():
    """With four steps of warm-up the rates are 1/4, 2/4, 3/4, 4/4 of the top."""
    spec = OptimizerSpec(learning_rate=8e-3, warmup_steps=4)
    assert [learning_rate(spec, step, 100) for step in range(4)] == [2e-3, 4e-3, 6e-3, 8e-3]


def test_cosine_falls_from_the_top_to_the_final_fraction():
    """Full at the first step after warm-up's last, halfway in the middle, the final fraction at the last."""
    spec = OptimizerSpec(learning_rate=1.0, warmup_steps=1, final_fraction=0.2)
    rates = [learning_rate(spec, step, 11) for step in range(11)]
    assert rates[0] == 1.0
    assert math.isclose(rates[5], (1 + 0.2) / 2)
    assert math.isclose(rates[10], 0.2)
    assert rates == sorted(rates, reverse=True)


def test_linear_falls_by_equal_amounts():
    """From the first step with the full rate to the last, every step falls by the same: (1 - 0.2)/10."""
    spec = OptimizerSpec(learning_rate=1.0, schedule="linear", warmup_steps=1, final_fraction=0.2)
    rates = [learning_rate(spec, step, 11) for step in range(11)]
    assert rates == pytest.approx([1 - 0.08 * step for step in range(11)])
    assert learning_rate(spec, 30, 11) == pytest.approx(0.2)


def test_wsd_stays_at_the_top_and_decays_over_its_share_of_the_run():
    """Of 20 steps with a decay of 0.2 the first 16 are at the top; the last 4 fall in a line to the final fraction."""
    spec = OptimizerSpec(learning_rate=1.0, schedule="wsd", warmup_steps=2, final_fraction=0.2, decay_fraction=0.2)
    rates = [learning_rate(spec, step, 20) for step in range(20)]
    assert rates[:16] == [0.5, *[1.0] * 15]
    assert rates[16:] == pytest.approx([0.8, 0.6, 0.4, 0.2])


def test_wsd_until_it_decays_does_not_know_how_long_the_run_is():
    """A run of 20 steps and one of 200 have the same rates up to where the shorter one decays."""
    spec = OptimizerSpec(schedule="wsd", warmup_steps=3)
    assert [learning_rate(spec, step, 20) for step in range(16)] == [
        learning_rate(spec, step, 200) for step in range(16)
    ]


def test_wsd_that_decays_all_the_way_is_linear():
    """A decay over the whole run begins at the end of the warm-up."""
    wsd = OptimizerSpec(schedule="wsd", warmup_steps=3, decay_fraction=1.0)
    linear = OptimizerSpec(schedule="linear", warmup_steps=3)
    assert [learning_rate(wsd, i, 12) for i in range(12)] == [learning_rate(linear, i, 12) for i in range(12)]


def test_constant_stays():
    """A constant schedule has the same rate at every step after the warm-up, also without a horizon."""
    spec = OptimizerSpec(learning_rate=1.0, schedule="constant", warmup_steps=2)
    assert [learning_rate(spec, step, 0) for step in range(4)] == [0.5, 1.0, 1.0, 1.0]


@given(
    st.sampled_from(("cosine", "linear", "wsd")),
    st.integers(0, 300),
    st.integers(1, 200),
    st.integers(0, 250),
    st.floats(0, 1),
)
def test_a_rate_is_always_within_its_bounds(schedule, step, num_steps, warmup_steps, final_fraction):
    """Whatever the numbers, a rate lies between 0 and the top, and never below the final fraction after warm-up."""
    spec = OptimizerSpec(learning_rate=1.0, schedule=schedule, warmup_steps=warmup_steps, final_fraction=final_fraction)
    rate = learning_rate(spec, step, num_steps)
    assert 0 < rate <= 1 or (rate == 0 == final_fraction) or math.isclose(rate, final_fraction, abs_tol=1e-12)
    if step >= warmup_steps:
        assert rate >= final_fraction - 1e-12
