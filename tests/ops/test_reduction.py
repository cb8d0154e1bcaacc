"""Rows to one value, and softmax: counted in plain Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

rows_and_columns = (st.integers(1, 500), st.integers(1, 500))


@given(*rows_and_columns)
def test_a_sum_of_n_takes_one_add_less_than_n(rows, n):
    work = ops.reduction("sum", rows, n)[0].work
    assert work.flops_full == rows * sum(1 for _ in range(1, n))
    assert (work.bytes_read, work.bytes_written) == (4 * rows * n, 4 * rows)


@given(*rows_and_columns)
def test_a_mean_divides_once_and_a_norm_squares_and_takes_one_root(rows, n):
    assert ops.reduction("mean", rows, n)[0].work.transcendentals == rows
    norm = ops.reduction("norm", rows, n)[0].work
    assert norm.flops_full == rows * (n + (n - 1))
    assert norm.transcendentals == rows


@given(*rows_and_columns)
def test_a_variance_takes_a_mean_then_differences_squares_and_their_sum(rows, n):
    """Sum n - 1; n differences, n squares, n - 1 adds; two divisions."""
    work = ops.reduction("var", rows, n)[0].work
    assert work.flops_full == rows * ((n - 1) + n + n + (n - 1))
    assert work.transcendentals == rows * 2


@given(*rows_and_columns)
def test_softmax_finds_the_largest_subtracts_exponentiates_sums_and_divides(rows, n):
    work = ops.softmax(rows, n, element_bytes=2)[0].work
    assert work.flops_full == rows * ((n - 1) + n + (n - 1))
    assert work.transcendentals == rows * (n + n)
    assert work.bytes_read == work.bytes_written == 2 * rows * n


@given(*rows_and_columns)
def test_the_gradient_of_softmax_is_y_times_dy_less_their_product(rows, n):
    """Input gradient dx = y·(dy - sum(y·dy)): n products, n - 1 adds, n differences, n products."""
    (piece,) = ops.softmax_backward(rows, n)
    assert piece.work.flops_full == rows * (n + (n - 1) + n + n)
    assert (piece.kind, piece.gradient_of) == ("reduction", "input")


def test_an_unheard_of_reduction_is_an_error():
    with pytest.raises(KeyError, match="median"):
        ops.reduction("median", 1, 3)
