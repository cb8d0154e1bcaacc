"""Cross-entropy: its two halves, forward and backward."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

sizes = (st.integers(1, 4096), st.integers(1, 10**5))


@given(*sizes)
def test_log_softmax_takes_a_log_a_row_where_softmax_divides(rows, n):
    work, softmax = ops.log_softmax(rows, n)[0].work, ops.softmax(rows, n)[0].work
    assert work.flops_full == softmax.flops_full + rows * n
    assert work.transcendentals == rows * n + rows


@given(*sizes)
def test_its_gradient_sums_dy_and_exponentiates_the_kept_result(rows, n):
    (piece,) = ops.log_softmax_backward(rows, n)
    assert piece.work.flops_full == rows * ((n - 1) + n + n)
    assert piece.work.transcendentals == rows * n
    assert piece.gradient_of == "input"


@given(*sizes)
def test_the_likelihood_reads_one_element_a_row_and_its_gradient_writes_all(rows, n):
    forward, backward = ops.nll_loss(rows, n)[0].work, ops.nll_loss_backward(rows, n)[0].work
    assert forward.flops_full == rows - 1
    assert forward.bytes_read == rows * (4 + 8)
    assert backward.bytes_written == 4 * rows * n


def test_all_four_are_of_kind_loss():
    pieces = (
        *ops.log_softmax(2, 3),
        *ops.log_softmax_backward(2, 3),
        *ops.nll_loss(2, 3),
        *ops.nll_loss_backward(2, 3),
    )
    assert {piece.kind for piece in pieces} == {"loss"}
