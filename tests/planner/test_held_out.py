"""Each row foretold by the others: by the closed form as by leaving it out."""

import math
import random

import pytest

from torchledger.planner.algebra import dot, inverse
from torchledger.planner.held_out import is_clearly_worse, left_out, mean_error


def test_a_row_left_out_is_expected_where_the_others_and_their_covariance_put_it() -> None:
    """Of six drawn rows, each is left out in truth: kᵀK⁻¹y of the other five is what the closed form takes away."""
    draw = random.Random(3)
    factors = [[draw.gauss(0, 1) for _ in range(3)] for _ in range(6)]
    together = [[dot(a, b) + (0.3 if i == j else 0.0) for j, b in enumerate(factors)] for i, a in enumerate(factors)]
    values = [draw.gauss(0, 1) for _ in range(6)]
    for i, rest in enumerate(left_out(together, values)):
        others = [j for j in range(6) if j != i]
        precision = inverse([[together[a][b] for b in others] for a in others])
        pull = [dot(row, [values[j] for j in others]) for row in precision]
        assert rest == pytest.approx(values[i] - dot([together[i][j] for j in others], pull))


def test_rows_that_share_nothing_foretell_nothing() -> None:
    assert left_out([[2.0, 0.0], [0.0, 5.0]], [0.3, -0.1]) == pytest.approx([0.3, -0.1])


def test_the_error_is_that_of_seconds_and_not_of_their_logarithms() -> None:
    """Predicted half and twice the measured: 50 % and 100 % off."""
    assert mean_error([math.log(2), -math.log(2)]) == pytest.approx((0.5 + 1.0) / 2)


def test_worse_by_less_than_one_standard_error_is_not_clearly_worse() -> None:
    """Differences of 3, 3 and 0 %: a mean of 2 with a standard error of 1; of 6, 0 and -1 %: 1.7 with one of 2.2."""
    rests = [math.log(1.1)] * 3

    def higher(*more: float) -> list[float]:
        return [-math.log(math.exp(-r) - each) for r, each in zip(rests, more, strict=True)]

    assert is_clearly_worse(higher(0.03, 0.03, 0.0), rests)
    assert not is_clearly_worse(higher(0.06, 0.0, -0.01), rests)
    assert not is_clearly_worse(rests, rests)
