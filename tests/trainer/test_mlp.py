import math

import pytest
import torch

from torchledger.spec import MlpSpec
from torchledger.trainer.mlp import Mlp

FORMULAS = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "gelu": lambda x: x * (1 + torch.erf(x / math.sqrt(2))) / 2,
    "gelu_tanh": lambda x: x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
    "relu": lambda x: torch.where(x > 0, x, 0),
    "relu_squared": lambda x: torch.where(x > 0, x * x, 0),
}


@pytest.mark.parametrize("activation", FORMULAS)
@pytest.mark.parametrize("kind", ["plain", "gated"])
def test_it_is_its_formula(kind, activation):
    """Plain is down(act(up x)), gated is down(act(gate x) · up x), with the activation as its paper writes it."""
    mlp = Mlp(8, MlpSpec(12, kind, activation, up_bias=True, down_bias=True))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in mlp.parameters():
            p.normal_(generator=generator)
    x = torch.randn(3, 8, generator=generator)
    act = FORMULAS[activation]
    up = x @ mlp.up.weight.T + mlp.up.bias
    inner = act(up) if kind == "plain" else act(x @ mlp.gate.weight.T + mlp.gate.bias) * up
    torch.testing.assert_close(mlp(x), inner @ mlp.down.weight.T + mlp.down.bias)
