"""A trace leaves no fake tensor in the cache of a function, and leaves other caches alone."""

import functools

import pytest
import torch
from torch import nn

from torchledger.tracer import trace
from torchledger.tracer.caches import without_fakes


@functools.lru_cache(maxsize=4)
def _positions(count):
    return torch.arange(count, dtype=torch.float32)


@functools.cache
def _positions_and_name(count):
    return {"name": "positions", "values": [torch.arange(count, dtype=torch.float32)]}


@functools.lru_cache
def _number(count):
    return count + 1


class _Positioned(nn.Module):
    """A linear layer, positions added that a function keeps."""

    def __init__(self, positions):
        super().__init__()
        self.positions = positions
        self.linear = nn.Linear(4, 4)

    def forward(self, tokens):
        return self.linear(tokens + self.positions(4)).sum()


@pytest.mark.parametrize(
    ("cached", "positions"),
    [(_positions, _positions), (_positions_and_name, lambda count: _positions_and_name(count)["values"][0])],
    ids=["a bounded cache", "an unbounded cache, the tensor deep inside"],
)
def test_a_model_that_was_traced_runs_as_before(cached, positions):
    """Its positions are real: 0, 1, 2, 3 on weights of 1 and a bias of 0 are 6 for each of 4 outputs and 2 rows."""
    cached.cache_clear()
    model = _Positioned(positions)
    nn.init.ones_(model.linear.weight)
    nn.init.zeros_(model.linear.bias)
    trace(model, torch.zeros(2, 4))
    assert model(torch.zeros(2, 4)).item() == 2 * 4 * (0 + 1 + 2 + 3)


def test_what_is_real_stays_in_its_cache():
    """The very object that was kept before is found after, whatever the trace added to other caches."""
    kept = _positions(3)
    _number(7)
    with without_fakes():
        _number(8)
    assert _positions(3) is kept
    assert _number.cache_info().currsize >= 2
