"""The algebra of small matrices, by hand."""

from __future__ import annotations

import pytest

from torchledger.planner.algebra import dot, inverse, quadratic, solve, student, times

#: det = 4·3 - 2·2 = 8, so the inverse is [[3, -2], [-2, 4]] / 8.
M = ((4.0, 2.0), (2.0, 3.0))


def test_a_solution_solves() -> None:
    x = solve(M, (8.0, 10.0))
    assert x == pytest.approx([(3 * 8 - 2 * 10) / 8, (-2 * 8 + 4 * 10) / 8])
    assert times(M, x) == pytest.approx([8, 10])


def test_an_inverse_is_adjugate_over_determinant() -> None:
    assert inverse(M) == ((pytest.approx(3 / 8), pytest.approx(-2 / 8)), (pytest.approx(-2 / 8), pytest.approx(4 / 8)))


def test_a_form_is_x_times_what_the_matrix_makes_of_it() -> None:
    x = (1.0, -2.0)
    assert quadratic(M, x) == 4 * 1 + 2 * 2 * (1 * -2) + 3 * 4
    assert dot(x, times(M, x)) == quadratic(M, x)


def test_students_quantiles_are_those_of_the_tables() -> None:
    """0.95 with 3, 5 and 30 degrees: 2.353, 2.015, 1.697 (Abramowitz and Stegun, table 26.10)."""
    assert [student(0.95, v) for v in (3, 5, 30)] == pytest.approx([2.353, 2.015, 1.697], rel=5e-3)
