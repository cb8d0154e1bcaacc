"""Which gradients a kernel that makes all of them was asked for."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.ledger import HARDWARE_FLOPS
from torchledger.tracer import trace
from torchledger.tracer.needed import needed_gradients

B, H, S, h = 2, 2, 4, 8
ONE = 2 * B * H * S * S * h


class Attention(nn.Module):
    """Attention, some of whose operands are trained."""

    def __init__(self, trained):
        super().__init__()
        for name in "qkv":
            value = nn.Parameter(torch.zeros(B, H, S, h), requires_grad=name in trained)
            self.register_parameter(name, value)

    def forward(self, _):
        """Of the three."""
        return functional.scaled_dot_product_attention(self.q, self.k, self.v)


@pytest.mark.parametrize(
    ("trained", "products"),
    [
        ("v", 1),  # dV = Pᵀ dO
        ("q", 2),  # dP = dO Vᵀ, dQ = dS K
        ("k", 2),
        ("qk", 3),
        ("qv", 3),
        ("qkv", 4),
    ],
)
def test_attention(trained, products):
    """Model FLOPs have the products that lead to what is trained; the kernel runs five whatever is asked."""
    ledger = trace(Attention(trained), torch.zeros(1), loss=lambda y, _: y.mean()).ledger
    backward = ledger.where(phase="backward", kind="attention")
    assert backward.flops == products * ONE
    assert backward.under(HARDWARE_FLOPS).flops == 5 * ONE


@pytest.mark.parametrize(("of_input", "of_state"), [(False, False), (True, False), (False, True), (True, True)])
def test_an_lstm_layer(of_input, of_state):
    """The input's gradient and the last step's of the state are there when somebody needs them."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(3, 4)

        def forward(self, x, state):
            return self.lstm(x, (state, state))[0]

    x, state = torch.zeros(5, 2, 3, requires_grad=of_input), torch.zeros(1, 2, 4, requires_grad=of_state)
    ledger = trace(Layer(), (x, state), loss=lambda y, _: y.mean()).ledger
    backward = ledger.where(phase="backward", kind="matmul")
    one_step = 2 * 2 * 16 * 4
    weights = 2 * 5 * 2 * 16 * (3 + 4)
    assert backward.flops == weights + (4 + of_state) * one_step + (2 * 5 * 2 * 16 * 3 if of_input else 0)


def test_every_other_operation_is_left_alone():
    assert needed_gradients(torch.ops.aten.mm.default, None) is None
