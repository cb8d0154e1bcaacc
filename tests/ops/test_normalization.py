"""Norms: the counted operations are those of the formulas, written out."""

from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

sizes = (st.integers(1, 300), st.integers(1, 300))


@given(*sizes, st.booleans())
def test_rms_norm_squares_averages_and_scales_each_row(rows, n, affine):
    squares, adds, mean, epsilon, scaled, weighted = n, n - 1, 1, 1, n, n if affine else 0
    work = ops.rms_norm(rows, n, affine=affine)[0].work
    assert work.flops_full == rows * (squares + adds + mean + epsilon + scaled + weighted)
    assert work.transcendentals == rows
    assert work.bytes_read == 4 * (rows * n + (n if affine else 0))


@given(*sizes, st.booleans())
def test_the_gradient_of_rms_norm_is_split_into_input_and_weight(rows, n, affine):
    g, x_hat, product, mean, three = (n if affine else 0), n, n, n, 3 * n
    pieces = ops.rms_norm_backward(rows, n, affine=affine)
    assert pieces[0].gradient_of == "input"
    assert pieces[0].work.flops_full == rows * (g + x_hat + product + mean + three)
    assert len(pieces) == (2 if affine else 1)
    if affine:
        assert pieces[1].gradient_of == "weight"
        assert pieces[1].work.flops_full == rows * n + (rows - 1) * n
        assert pieces[1].work.bytes_written == 4 * n


@given(*sizes, st.booleans(), st.booleans())
def test_layer_norm_takes_mean_and_variance_of_each_row(rows, n, affine, bias):
    mean, differences, squares, variance, epsilon, scaled = n, n, n, n, 1, n
    weight, shift = (n if affine else 0), (n if affine and bias else 0)
    work = ops.layer_norm(rows, n, affine=affine, bias=bias)[0].work
    assert work.flops_full == rows * (mean + differences + squares + variance + epsilon + scaled + weight + shift)
    assert work.bytes_written == 4 * (rows * n + 2 * rows)


@given(*sizes, st.booleans(), st.booleans())
def test_the_gradient_of_layer_norm_takes_two_means_and_a_bias_only_a_sum(rows, n, affine, bias):
    g, x_hat, two_means, product, tail = (n if affine else 0), 2 * n, 2 * n, n, 4 * n
    pieces = ops.layer_norm_backward(rows, n, affine=affine, bias=bias)
    assert pieces[0].work.flops_full == rows * (g + x_hat + two_means + product + tail)
    assert len(pieces) == (2 if affine else 1)
    if affine:
        sums = (rows - 1) * n * (2 if bias else 1)
        assert pieces[1].work.flops_full == rows * n + sums
