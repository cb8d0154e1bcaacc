"""Tensors as they are met: permuted, with gaps; and an eye on what torch copies."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Watched(TorchDispatchMode):
    """Elements of every copy, and sizes (b, m, n, k) of every batched product, in their order."""

    def __init__(self):
        super().__init__()
        self.copies, self.products = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.partition(".")[0]
        if name == "clone":
            self.copies.append(args[0].numel())
        elif name == "bmm":
            (b, m, k), n = args[0].shape, args[1].shape[2]
            self.products.append((b, m, n, k))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def watched():
    return Watched


@pytest.fixture
def strided():
    """A tensor of a shape whose elements lie in another order, and at times with gaps between them."""

    def make(shape, rng, dtype=torch.float64):
        order = list(range(len(shape)))
        if rng.random() < 0.5:
            rng.shuffle(order)
        whole = [shape[dim] * (2 if rng.random() < 0.15 else 1) for dim in order]
        x = torch.randint(-4, 5, whole).to(dtype)  # sums of such are exact
        x = x[tuple(slice(0, shape[dim]) for dim in order)]
        return x.permute([order.index(dim) for dim in range(len(shape))])

    return make
