"""The size of a tensor is that of its numbers, however they are stored."""

import math

import pytest
import torch

from torchledger.auditor.init_size import size_of


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_size_in_every_format(dtype):
    """Of 3, -1, 1, -1: mean 2/4 = 0.5, mean square (9 + 1 + 1 + 1)/4 = 3, variance 3 - 0.25."""
    size = size_of(torch.tensor([3.0, -1.0, 1.0, -1.0], dtype=dtype))
    assert size.mean == 0.5
    assert size.rms == pytest.approx(math.sqrt(3))
    assert size.variance == pytest.approx(2.75)


def test_zeros_that_a_sparse_tensor_leaves_out_count():
    """One 4 in a row of 16: mean 4/16 = 0.25, root mean square sqrt(16/16) = 1, as a sparse embedding's gradient is."""
    sparse = torch.zeros(1, 16).index_fill(1, torch.tensor([5]), 4.0).to_sparse()
    assert (size_of(sparse).mean, size_of(sparse).rms) == (0.25, 1.0)
