"""A linear layer on an input that is not contiguous: its bias is added in place, as without a recorder."""

import torch
from torch import nn
from torch.nn import functional

from torchledger.meter import allocations
from torchledger.tracer import trace_step
from torchledger.tracer.recorder import Recorder

B, C, T, D = 4, 16, 8, 32


def test_the_bias_is_added_in_place():
    """One tensor of the output's size, and the gradients are what they are without a recorder."""
    layer, x = nn.Linear(C, D), torch.linspace(-1, 1, B * C * T).view(B, C, T)
    with Recorder() as recorder:
        layer(x.transpose(1, 2)).square().sum().backward()
    made = [b for b in recorder.trace().timeline.blocks if b.num_bytes == B * T * D * 4 and b.phase == "forward"]
    assert [block.op for block in made] == ["aten.mm.default", "aten.pow.Tensor_Scalar"]
    seen = [parameter.grad for parameter in layer.parameters()]
    layer.zero_grad()
    layer(x.transpose(1, 2)).square().sum().backward()
    assert all(torch.equal(one, parameter.grad) for one, parameter in zip(seen, layer.parameters(), strict=True))


def test_what_the_user_adds_stays_beside_the_product():
    """`x @ w + b` makes two tensors."""
    with Recorder() as recorder:
        x, w, b = torch.ones(B, T, C), torch.ones(C, D), torch.ones(D)
        _ = torch.add(x @ w, b)
    made = [block.op for block in recorder.trace().timeline.blocks if block.num_bytes == B * T * D * 4]
    assert made == ["aten.mm.default", "aten.add.Tensor"]


def test_the_peak_is_the_allocators():
    """An output of a layer more or less is seen here: the recorder's peak is that of the same step without it."""

    def build():
        layer, x = nn.Linear(C, 64 * D), torch.ones(B, C, T)

        def step():
            functional.linear(x.transpose(1, 2), layer.weight, layer.bias)

        return step

    predicted = trace_step(build, steps=1)

    def really():
        build()()

    really()
    assert predicted.timeline.peak().peak_bytes == allocations(really).peak_bytes
