"""What any constants leave at least is a bound: it holds, and it is met."""

from __future__ import annotations

import math
from itertools import product

import pytest

from torchledger.planner.constants import Constants
from torchledger.planner.held_out import mean_error
from torchledger.planner.hindsight import after_over_before, choices, least_error

START = Constants(overhead=1.0)


def step(products, network, rest=0.0):
    """A step of so many seconds at the default constants: of products, over the network, and of neither."""
    return lambda c: (
        c.overhead
        * (products * START.matmul_share / c.matmul_share + network * START.network_factor / c.network_factor + rest)
    )


def error(predicts, measured, constants):
    return sum(abs(p(constants) / t - 1) for p, t in zip(predicts, measured, strict=True)) / len(measured)


def test_rows_that_some_constants_explain_have_no_error_that_must_be_left():
    """Measured with products at 0.8 and the network at half of what is believed."""
    truth = Constants(matmul_share=0.8, network_factor=0.5)
    predicts = [step(1, 1), step(2, 1), step(1, 3), step(4, 0)]
    floor = least_error(predicts, [p(truth) for p in predicts], START)
    assert floor.error == pytest.approx(0, abs=1e-4)
    assert floor.reached == pytest.approx(0, abs=1e-4)


def test_of_equal_questions_with_different_answers_half_of_the_difference_is_left():
    """1, 1 and 2 s for one question: the least mean error is that of 1 s, |1/2 - 1| / 3."""
    floor = least_error([step(1, 0)] * 3, [1.0, 1.0, 2.0], START)
    assert floor.error == pytest.approx(0.5 / 3, abs=1e-3)
    assert floor.error <= floor.reached


def test_no_constants_of_a_grid_go_below_the_bound_and_one_comes_near():
    """Six rows of two kinds of seconds that no constants explain; 120 × 120 constants are tried, 1.5 and 3 % apart."""
    predicts = [step(1, 0.2), step(1, 0.5), step(1, 1), step(2, 0.1), step(3, 3), step(1, 0)]
    measured = [1.3, 1.2, 2.9, 2.0, 7.5, 1.1]
    floor = least_error(predicts, measured, START)
    tried = [
        Constants(matmul_share=0.2 * 6 ** (i / 119), network_factor=0.05 * 30 ** (j / 119))
        for i, j in product(range(120), range(120))
    ]
    best = min(error(predicts, measured, constants) for constants in tried)
    assert floor.error <= best
    assert best < floor.error + 0.01
    assert floor.reached - floor.error < 1e-3


def test_constants_stay_within_the_bounds_of_a_calibration():
    """Products at 1.2 of the best rate and an overhead of 0.5 are the least: 0.5/1.2 s, where 0.25 s are measured."""
    floor = least_error([step(1, 0)], [0.25], START)
    assert floor.error == pytest.approx(0.5 / 1.2 / 0.25 - 1, rel=1e-3)
    floor = least_error([step(1, 0)], [20.0], START)  # at most 3 / 0.2 s: a fifth of the best rate, an overhead of 3
    assert floor.error == pytest.approx(1 - 3 / 0.2 / 20, rel=1e-3)


def test_the_choices_of_a_few_rows_are_all_there_are_and_of_many_some():
    assert len(set(choices(7, 3, 100))) == math.comb(7, 3)
    drawn = list(choices(50, 5, 200))
    assert len(drawn) == 200
    assert all(len(set(each)) == 5 and max(each) < 50 for each in drawn)
    assert drawn == list(choices(50, 5, 200))


def test_a_measured_row_moves_those_that_are_believed_to_go_with_it():
    """Covariance 1 with the row measured, whose own is 1 and NOISE² besides: nearly all of the rest is taken away.

    The third row goes with none and stays off by 0.1.
    """
    believed = [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    left = 0.2 * (1 - 1 / (1 + 0.05**2))
    expected = mean_error([left, 0.1]) / mean_error([0.2, 0.1])
    assert after_over_before(believed, [0.2, 0.2, 0.1], [0]) == pytest.approx(expected)
