"""Constants fitted to a handful of rows: exact rows give them back, few rows keep the prior, intervals cover."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from torchledger.planner.calibration import Predict, fit
from torchledger.planner.constants import Constants
from torchledger.planner.doubt import suspicious
from torchledger.planner.errors import PlanError

SPREADS = {"matmul_share": 0.15, "memory_share": 0.2, "host_s": 0.6}


def step(matmul: float, memory: float, host: float) -> Predict:
    """A step with so many seconds of each at the default constants."""
    start = Constants()

    def predict(constants: Constants) -> float:
        return (
            matmul * start.matmul_share / constants.matmul_share
            + memory * start.memory_share / constants.memory_share
            + host * constants.host_s / start.host_s
        )

    return predict


STEPS = [step(*amounts) for amounts in ((1, 0.1, 0.1), (0.2, 1, 0.1), (0.1, 0.1, 1), (0.5, 0.5, 0.2), (2, 1, 0.5))]


def test_rows_of_a_cluster_with_other_constants_give_those_back() -> None:
    truth = replace(Constants(), matmul_share=0.8, memory_share=0.6, host_s=2e-5)
    rows = [(predict, predict(truth)) for predict in STEPS * 4]
    fitted = fit(rows, Constants(), spreads=SPREADS).constants
    assert fitted.matmul_share == pytest.approx(0.8, rel=0.03)
    assert fitted.memory_share == pytest.approx(0.6, rel=0.04)
    assert fitted.host_s == pytest.approx(2e-5, rel=0.05)


def test_one_row_moves_what_it_tells_of_and_leaves_the_rest() -> None:
    truth = replace(Constants(), matmul_share=0.8)
    products = step(1, 0, 0)
    fitted = fit([(products, products(truth))], Constants(), spreads=SPREADS).constants
    assert 0.8 < fitted.matmul_share < 0.9
    assert fitted.host_s == pytest.approx(Constants().host_s)


def test_rows_that_agree_with_the_defaults_change_nothing() -> None:
    fitted = fit([(predict, predict(Constants())) for predict in STEPS], Constants(), spreads=SPREADS)
    assert fitted.constants.matmul_share == pytest.approx(1.0)
    assert fitted.before == pytest.approx(0, abs=1e-9)


def test_rows_that_the_defaults_foretell_better_than_each_other_keep_the_defaults() -> None:
    """Alike steps that scatter by ±4 % about the default: fitted to the others, each would be missed by more."""
    predict = STEPS[0]
    rows = [(predict, predict(Constants()) * math.exp(each)) for each in (0.04, -0.04, 0.04, -0.04)]
    fitted = fit(rows, Constants(source="of the chip"), places=[(float(i) / 4,) for i in range(4)])
    assert fitted.is_default
    assert fitted.held_out is not None
    assert fitted.held_out > fitted.before == fitted.after == pytest.approx((math.exp(0.04) - math.exp(-0.04)) / 2)
    assert fitted.constants == replace(Constants(), source="of the chip, kept after 4 measured rows")
    assert fitted.expected(predict, (0.0,)) == predict(Constants())
    # three rows' worth of 8 % and four of 4 %, known with as many degrees of freedom
    assert fitted.sigma == pytest.approx(math.sqrt((3 * 0.08**2 + 4 * 0.04**2) / 7))


def test_rows_that_foretell_each_other_are_fitted() -> None:
    """All 20 % slower than the default: from three of them the fourth is known."""
    rows = [(predict, 1.2 * predict(Constants())) for predict in STEPS[:4]]
    fitted = fit(rows, Constants(), places=[(float(i),) for i in range(4)])
    assert not fitted.is_default
    assert fitted.held_out is not None
    assert fitted.held_out < 0.5 * fitted.before == pytest.approx(0.5 * (1 - 1 / 1.2))


def test_a_single_row_is_fitted_though_nothing_foretells_it() -> None:
    fitted = fit([(STEPS[0], 1.1 * STEPS[0](Constants()))], Constants())
    assert fitted.held_out is None
    assert not fitted.is_default


def test_nine_of_ten_new_rows_lie_in_the_interval() -> None:
    """Clusters are drawn from the prior, five rows fitted, others predicted: the 90 % interval covers 85 to 98 %."""
    draw = random.Random(7)
    inside = total = 0
    for _ in range(120):
        truth = replace(
            Constants(),
            **{name: getattr(Constants(), name) * math.exp(draw.gauss(0, s)) for name, s in SPREADS.items()},
        )
        made = [step(draw.uniform(0.2, 2), draw.uniform(0.1, 1), draw.uniform(0, 0.5)) for _ in range(10)]
        seen = [(p, p(truth) * math.exp(draw.gauss(0, 0.08))) for p in made]
        fitted = fit(seen[:5], Constants(), spreads=SPREADS)
        for predict, seconds in seen[5:]:
            low, high = fitted.interval(predict)
            inside += low <= seconds <= high
            total += 1
    assert 0.85 <= inside / total <= 0.98


def test_what_a_row_leaves_over_moves_questions_like_it_and_no_others() -> None:
    """A step half as long again as the constants can explain: its twin is expected longer, one far away is not."""
    predict = STEPS[0]
    fitted = fit([(predict, 1.5 * predict(Constants()))] * 2, Constants(), spreads=SPREADS, places=[(0.0,), (0.0,)])
    alone = fitted.expected(predict)
    assert alone == predict(fitted.constants)
    assert fitted.expected(predict, (0.0,)) > 1.02 * alone
    assert fitted.expected(predict, (100.0,)) == pytest.approx(alone)


def test_an_interval_is_narrower_near_a_measured_question() -> None:
    rows = [(predict, predict(Constants())) for predict in STEPS]
    fitted = fit(rows, Constants(), spreads=SPREADS, places=[(float(i),) for i in range(len(rows))])
    near, far, unknown = (fitted.interval(STEPS[0], place) for place in ((0.0,), (100.0,), None))
    assert near[1] / near[0] < far[1] / far[0]
    assert far[1] / far[0] == pytest.approx(unknown[1] / unknown[0])


@pytest.mark.parametrize(("num_rows", "degrees"), [(1, 3), (5, 3), (6, 4), (20, 18)])
def test_a_level_and_a_spread_cost_two_rows(num_rows: int, degrees: int) -> None:
    """Where questions are told, sigma is known with the rows less two degrees of freedom, with three at least."""
    predict = STEPS[0]
    rows = [(predict, predict(Constants()))] * num_rows
    places = [(float(i),) for i in range(num_rows)]
    assert fit(rows, Constants(), spreads=SPREADS, places=places).degrees == degrees


def test_shared_rests_of_drawn_clusters_are_covered() -> None:
    """Like questions err together by 10 %: of new rows 85 to 98 % lie in the 90 % interval."""
    draw = random.Random(11)
    inside = total = 0
    for _ in range(100):
        truth = replace(
            Constants(),
            **{name: getattr(Constants(), name) * math.exp(draw.gauss(0, s)) for name, s in SPREADS.items()},
        )
        wave, phase = draw.gauss(0, 0.1), draw.uniform(0, 6)
        made = [(step(draw.uniform(0.2, 2), draw.uniform(0.1, 1), 0.1), (draw.uniform(0, 6),)) for _ in range(10)]
        seen = [(p, p(truth) * math.exp(wave * math.sin(x[0] / 2 + phase) + draw.gauss(0, 0.05)), x) for p, x in made]
        fitted = fit([(p, t) for p, t, _ in seen[:5]], Constants(), spreads=SPREADS, places=[x for *_, x in seen[:5]])
        for predict, seconds, where in seen[5:]:
            low, high = fitted.interval(predict, where)
            inside += low <= seconds <= high
            total += 1
    assert 0.85 <= inside / total <= 0.98


@pytest.mark.parametrize(
    "rows", [[], [(STEPS[0], 0.0)], [(STEPS[0], math.nan)], [(STEPS[0], 1e300)], [(STEPS[0], 1e-9)]]
)
def test_rows_that_cannot_be_are_refused(rows: list[tuple[Predict, float]]) -> None:
    with pytest.raises(PlanError):
        fit(rows, Constants())


def test_rows_that_are_more_than_ten_times_off_are_named() -> None:
    """Ten times more or less is within; a hair beyond is named with its place, by how much, and which way."""
    rows = [("m.csv:2", 1.0, 10.0), ("m.csv:3", 10.0, 1.0), ("m.csv:4", 1.0, 10.01), ("m.csv:5", 400.0, 2.0)]
    told = suspicious(rows)
    assert [line.partition(": ")[0] for line in told] == ["m.csv:4", "m.csv:5"]
    assert "10.0 times less" in told[0]
    assert f"{400 / 2:g} times more" in told[1]
    assert "2 s predicted" in told[1]
    assert "6m 40s measured" in told[1]
