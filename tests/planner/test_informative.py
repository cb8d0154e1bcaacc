"""The rows to measure are those that tell most of the others."""

from __future__ import annotations

from torchledger.planner.constants import Constants
from torchledger.planner.informative import informative

SPREADS = {"matmul_share": 0.2, "host_s": 0.6}


def step(matmul, host):
    """A step of so many seconds of each at the default constants."""
    start = Constants()
    return lambda c: matmul * start.matmul_share / c.matmul_share + host * c.host_s / start.host_s


def test_one_row_of_each_kind_is_measured_before_a_second_of_one():
    """Four runs bound by products and one by its host, all far apart: the first two chosen are of both kinds."""
    predicts = [step(1, 0), step(2, 0), step(3, 0), step(4, 0), step(0, 1)]
    places = [(10.0 * i,) for i in range(5)]
    first, second = informative(predicts, places, Constants(), 2, spreads=SPREADS)
    assert {first, second} & {4}
    assert {first, second} - {4}


def test_of_like_runs_the_one_in_their_middle_is_measured():
    predicts = [step(1, 0)] * 5
    assert informative(predicts, [(float(i),) for i in range(5)], Constants(), 1, spreads=SPREADS) == (2,)


def test_no_more_are_told_than_there_are():
    assert sorted(informative([step(1, 0)] * 2, [(0.0,), (1.0,)], Constants(), 5, spreads=SPREADS)) == [0, 1]
