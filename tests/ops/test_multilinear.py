"""Contractions of more or other than two matrices, counted one multiply-add at a time."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops
from torchledger.ops.multilinear import at_most

small = st.integers(1, 5)


@given(small, small, small, small)
def test_a_bilinear_form_is_two_contractions(n, o, i, j):
    """Σ_i a_ni W_oij for each n, o and j, then Σ_j of that with b_nj."""
    first = sum(2 for _ in range(n) for _ in range(o) for _ in range(i) for _ in range(j))
    second = sum(2 for _ in range(n) for _ in range(o) for _ in range(j))
    pieces = ops.trilinear(n * o * i * j, n * o * j)
    assert [piece.work.flops_full for piece in pieces] == [first, second]


def test_a_pair_that_sums_over_nothing_is_no_contraction():
    pieces = ops.trilinear(6, 12, first_sums=False)
    assert [(piece.kind, piece.work.flops_full) for piece in pieces] == [("pointwise", 6), ("matmul", 24)]


@given(small, small, small, small)
def test_grouped_rows_cost_the_same_however_they_are_shared_out(groups, m, n, k):
    assert ops.grouped_matmul(groups, m, n, k)[0].work.flops_full == ops.matmul(1, m, n, k)[0].work.flops_full


def test_distances_by_product_contract_once():
    product, rest = ops.distances_by_product(3, 4, 5, 6)
    assert product.work.flops_full == 2 * 3 * 4 * 5 * 6
    assert (rest.kind, rest.work.transcendentals) == ("pointwise", 3 * 4 * 5)


def test_distances_one_by_one_contract_nothing():
    """A difference, a square and a sum a coordinate less one, and a root; of odd powers two transcendentals."""
    (plain,) = ops.distances(10, 4)
    assert (plain.kind, plain.work.flops_full, plain.work.transcendentals) == ("pointwise", 10 * (3 * 4 - 1), 10)
    (manhattan,) = ops.distances(10, 4, exponent=1.0)
    assert manhattan.work.transcendentals == 0
    (cubic,) = ops.distances(10, 4, exponent=3.0)
    assert cubic.work.transcendentals == 10 * 4 + 10


def test_stored_values_are_what_a_sparse_product_multiplies():
    assert ops.sparse_matmul(7, 3)[0].work.flops_full == 2 * 7 * 3


def test_an_unknown_count_keeps_its_bound():
    piece = at_most(ops.matmul(1, 2, 3, 4)[0], 48)
    assert (piece.work.flops_full, dict(piece.shape)["at_most_flops"]) == (None, 48)
