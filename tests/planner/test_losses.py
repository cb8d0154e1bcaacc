import math
import random

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner import PlanError
from torchledger.planner.losses import best_interval_s, losses

LLAMA = parse_cluster("h100x16384")
RUN_S = 54 * 86400.0


@pytest.mark.parametrize(("mtbf_min", "printed"), [(24 * 60, 117), (6 * 60, 57), (15, 9.1)])
def test_dalys_own_examples(mtbf_min, printed):
    """Figures 3 to 5 of Daly 2006: with δ = 5 min, the optimum is 117, 57 and 9.1 minutes."""
    found = best_interval_s(5, mtbf_min)
    assert round(found, 1 if printed < 10 else None) == printed


def test_llama_3_failed_every_three_hours_and_trained_over_ninety_percent():
    """419 interruptions in 54 days on 16,384 chips are one in 3.1 h (arXiv:2407.21783, 3.3.4: over 90 % effective)."""
    lost = losses(LLAMA, RUN_S, checkpoint_bytes=405e9 * 14)
    assert any(f"{54 * 24 / 419:.1f}" == "3.1" and "every 3h 06m" in note for note in lost.assumptions)
    assert 0.9 < lost.goodput < 0.95


def test_shares_and_training_are_the_whole_wall_clock():
    """Named shares and the share of training add up to one, with every cause counted."""
    lost = losses(LLAMA, RUN_S, checkpoint_bytes=5e12, evaluation=0.03)
    assert list(lost.shares) == ["restarts", "work lost to failures", "checkpoints", "evaluation"]
    assert sum(lost.shares.values()) + lost.goodput == pytest.approx(1, abs=1e-12)
    assert lost.wall_s * lost.goodput == pytest.approx(RUN_S)
    assert lost.shares["evaluation"] / lost.goodput == pytest.approx(0.03 / 3)  # a forward pass is a third of a step


def test_the_shares_are_those_of_a_simulated_run():
    """A run with failures drawn at random spends its clock as Daly's equation 20 says, within the draw's noise."""
    mtbf, restart, write, interval = 3600.0, 600.0, 60.0, 900.0
    lost = losses(
        parse_cluster("h100"),
        1e6,
        failures_per_chip_hour=3600 / mtbf,
        restart_s=restart,
        checkpoint_s=write,
        interval_s=interval,
    )
    draw = random.Random(7)
    clock = kept = starting = 0.0
    failure = draw.expovariate(1 / mtbf)
    while kept < 20_000:  # stretches of training, each with its checkpoint
        if failure > interval + write:
            failure -= interval + write
            clock += interval + write
            kept += 1
            continue
        clock += failure
        failure = draw.expovariate(1 / mtbf)
        while failure < restart:
            clock, starting, failure = clock + failure, starting + failure, draw.expovariate(1 / mtbf)
        clock, starting, failure = clock + restart, starting + restart, failure - restart
    assert lost.goodput == pytest.approx(kept * interval / clock, rel=0.02)
    assert lost.shares["checkpoints"] == pytest.approx(kept * write / clock, rel=0.02)
    assert lost.shares["restarts"] == pytest.approx(starting / clock, rel=0.03)


def test_the_optimum_loses_least():
    """No interval loses less than 0.1 % below what Daly's optimum loses."""
    best = losses(LLAMA, RUN_S, checkpoint_s=30)
    for factor in (0.5, 0.8, 0.95, 1.05, 1.25, 2):
        other = losses(LLAMA, RUN_S, checkpoint_s=30, interval_s=best.interval_s * factor)
        assert other.goodput <= best.goodput * 1.001


def test_more_chips_fail_more_often():
    """The mean time between failures falls as chips rise: a small cluster hardly loses."""
    small = losses(parse_cluster("h100x8"), RUN_S, checkpoint_bytes=1e9)
    assert small.goodput > 0.999
    assert math.isclose(small.shares["restarts"], 600 * 8 * 419 / (54 * 86400 * 16384), rel_tol=1e-3)


def test_an_unknown_size_of_a_checkpoint_is_said_and_not_zero_by_stealth():
    """Without its size neither writing nor lost work is counted, and the assumptions say so."""
    lost = losses(LLAMA, RUN_S)
    assert list(lost.shares) == ["restarts"]
    assert any("not counted: their size is not known" in note for note in lost.assumptions)
    assert any("--evaluation" in note for note in lost.assumptions)


def test_a_given_goodput_stands_for_all_of_them():
    """90 % goodput is a tenth of the wall clock lost, and nothing else is assumed."""
    lost = losses(LLAMA, 9.0, goodput=0.9)
    assert lost.wall_s == pytest.approx(10)
    assert dict(lost.shares) == {"everything but training": pytest.approx(0.1)}
    assert len(lost.assumptions) == 1


def test_a_checkpoint_longer_than_the_time_between_failures_is_taken_at_its_word():
    """Beyond δ = 2M Daly's series does not hold, and the interval is M."""
    assert best_interval_s(100, 40) == 40


@pytest.mark.parametrize(("every_s", "write_s"), [(1.0, 30.0), (0.01, 30.0), (1e-9, 0.0), (60.0, 1e9)])
def test_failures_that_leave_no_time_to_train_are_refused(every_s, write_s):
    """A failure a second and ten minutes for each restart: no goodput to divide by, and no overflow."""
    with pytest.raises(PlanError, match="leave no time to train"):
        losses(LLAMA, RUN_S, failures_per_chip_hour=3600 / (every_s * 16384), checkpoint_s=write_s)


def test_mistakes_are_told_at_once():
    """Amounts that cannot be are one message; goodput is a share."""
    with pytest.raises(PlanError, match=r"(?s)run_s is -1.*restart_s is -5"):
        losses(LLAMA, -1, restart_s=-5)
    with pytest.raises(PlanError, match=r"goodput is 1\.2"):
        losses(LLAMA, 1, goodput=1.2)
