"""Convolutions, counted one multiply-add at a time."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops

small = st.integers(1, 4)


def _one_by_one(*sizes):
    """FLOPs of one product: each sample, position, tap and pair of channels of each group is a multiply-add."""
    return sum(2 for _ in itertools.product(*(range(size) for size in sizes)))


@given(st.tuples(*[small] * 6), small, st.booleans())
def test_forward_and_both_gradients(sizes, groups, transposed):
    """Three products of the same multiply-adds; a transposed one's positions are its input's."""
    batch, before, after, inputs, outputs, taps = sizes
    expected = _one_by_one(batch, before if transposed else after, groups, inputs, outputs, taps)
    rules = (ops.convolution, ops.convolution_input_gradient, ops.convolution_weight_gradient)
    pieces = [rule(*sizes, groups=groups, transposed=transposed)[0] for rule in rules]
    assert [piece.work.flops_full for piece in pieces] == [expected] * 3
    assert [piece.gradient_of for piece in pieces] == ["none", "input", "weight"]
    for piece in pieces:
        sizes_of_product = dict(piece.shape)
        product = 2
        for name in ("b", "m", "n", "k"):
            product *= sizes_of_product[name]
        assert product == expected


@pytest.mark.parametrize("transposed", [False, True])
def test_bytes_are_those_of_the_tensors(transposed):
    """Forward reads x and W and writes y; backward reads what the gradient is made of."""
    x, y, w = 2 * 64 * 4 * 3, 2 * 16 * 4 * 5, 4 * 3 * 5 * 9
    sizes, options = (2, 64, 16, 3, 5, 9), {"groups": 4, "transposed": transposed, "element_bytes": 2}
    forward, of_input, of_weight = (
        rule(*sizes, **options)[0].work
        for rule in (ops.convolution, ops.convolution_input_gradient, ops.convolution_weight_gradient)
    )
    assert (forward.bytes_read, forward.bytes_written) == (2 * (x + w), 2 * y)
    assert (of_input.bytes_read, of_input.bytes_written) == (2 * (y + w), 2 * x)
    assert (of_weight.bytes_read, of_weight.bytes_written) == (2 * (x + y), 2 * w)


def test_a_bias_is_one_add_an_output_and_its_gradient_a_sum():
    _, bias = ops.convolution(2, 64, 16, 3, 5, 9, groups=4, bias=True)
    assert (bias.kind, bias.work.flops_full) == ("pointwise", 2 * 16 * 4 * 5)
    (gradient,) = ops.convolution_bias_gradient(2, 16, 20)
    assert (gradient.gradient_of, gradient.work.flops_full) == ("weight", (2 * 16 - 1) * 20)
