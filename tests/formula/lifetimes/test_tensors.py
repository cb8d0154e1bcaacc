"""Layouts are torch's own, asked of torch."""

import itertools

import pytest
import torch

from torchledger.formula.lifetimes.memory import Memory
from torchledger.formula.lifetimes.tensors import Tensor, made, strides_of, view_strides


def _as_torch(x):
    return torch.empty_strided(x.shape, x.strides)


def _permuted(shape, order):
    x = made(Memory(), shape, "fp32")
    return Tensor(x.block, [shape[i] for i in order], [x.strides[i] for i in order], "fp32")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_what_an_operation_makes_lies_as_torchs_does(order):
    """Of one operand, of two that lie otherwise, and of one that is repeated."""
    x, plain = _permuted((2, 3, 4), order), made(Memory(), tuple((2, 3, 4)[i] for i in order), "fp32")
    assert strides_of(x.shape, x) == (_as_torch(x) * 2).stride()
    assert strides_of(x.shape, x, plain) == (_as_torch(x) * _as_torch(plain)).stride()
    assert strides_of(x.shape, plain, x) == (_as_torch(plain) * _as_torch(x)).stride()
    repeated = Tensor(x.block, x.shape, (x.strides[0], 0, x.strides[2]), "fp32")
    assert strides_of(x.shape, repeated, x) == (_as_torch(repeated) * _as_torch(x)).stride()


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 1, 4), (1, 1, 4)])
@pytest.mark.parametrize("into", ["flat", "pairs", "rows"])
def test_a_view_is_one_where_torchs_is(order, shape, into):
    x = _permuted(shape, order)
    sizes = {"flat": (x.num_elements,), "pairs": (x.shape[0] * x.shape[1], x.shape[2]), "rows": (x.shape[0], -1)}[into]
    sizes = tuple(x.num_elements // x.shape[0] if size == -1 else size for size in sizes)
    found = view_strides(x.shape, x.strides, sizes)
    try:
        expected = _as_torch(x).view(sizes).stride()
    except RuntimeError:
        expected = None
    assert (found is None) == (expected is None)
    if found is not None:
        assert all(n == 1 or a == b for n, a, b in zip(sizes, found, expected, strict=True))
