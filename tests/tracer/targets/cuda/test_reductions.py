"""Buffers of sums over leading dimensions; the figures are of recorded GPU runs, the rules those of Reduce.cuh."""

import pytest

from torchledger.tracer.targets.cuda.reductions import buffers_of_sum

MIB = 1 << 20


def contiguous(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(1024, (32 * MIB, 32)), (512, (16 * MIB, 32)), (256, (8 * MIB, 32)), (128, None)],
)
def test_gradients_of_norm_weights_as_recorded(tokens, expected):
    """FP32, 4 sequences, width 1,024: 64, 32, 16 and 1 blocks an output; the last ones sum less than 256 values each.

    A block is 32 x 4 threads of 4 outputs each, so a buffer is 4 B x 1,024 x blocks x 32 x 4, with 8 semaphores.
    """
    shape = (4, tokens, 1024)
    if expected is not None:
        assert expected[0] == 4 * 1024 * (4 * tokens // 4 // 16) * 32 * 4
    assert buffers_of_sum(shape, contiguous(shape), (0, 1), 4) == expected


def test_other_sums_hold_nothing_worth_telling():
    """Along the last dimension, over everything, over no dimension, of a transposed or an empty tensor."""
    shape = (4096, 1024)
    assert buffers_of_sum(shape, contiguous(shape), (1,), 4) is None
    assert buffers_of_sum(shape, contiguous(shape), (0, 1), 4) is None
    assert buffers_of_sum(shape, contiguous(shape), (), 4) is None
    assert buffers_of_sum(shape, (1, 4096), (0,), 4) is None
    assert buffers_of_sum((0, 1024), (1024, 1), (0,), 4) is None


def test_odd_widths_are_summed_one_by_one():
    """1,023 outputs are no multiple of 2: blocks of 32 x 16 threads of one output each."""
    values = 8192 // 16
    assert buffers_of_sum((8192, 1023), (1023, 1), (0,), 4) == (4 * 1023 * (values // 16) * 32, 4 * 32)
