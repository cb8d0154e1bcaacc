"""The lecture's linear networks: closed form == trace, in FLOPs by account and in every kept byte."""

import pytest
import torch
from torch import nn

from torchledger.formula import linear_network
from torchledger.tracer import trace


def _mean_square(output, _batch):
    return output.float().square().mean()


def _network(D, L, K):
    """`layers.0` ... and `head`, the names of the closed form."""
    layers = nn.ModuleDict({"layers": nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(L)))})
    if K is not None:
        layers["head"] = nn.Linear(D, K, bias=False)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = layers["layers"]
            self.head = layers["head"] if K is not None else None

        def forward(self, x):
            h = self.layers(x)
            return h if self.head is None else self.head(h)

    return Network()


@pytest.mark.parametrize(("B", "D", "L", "K"), [(4, 8, 1, 2), (16, 32, 4, None), (2, 3, 6, 1), (1, 5, 1, None)])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("input_gradient", [True, False])
def test_the_closed_form_is_the_trace(B, D, L, K, precision, input_gradient):  # noqa: PLR0917 - the lecture's letters
    closed = linear_network(B, D, L, outputs=K, input_gradient=input_gradient, precision=precision)
    x = torch.zeros(B, D, requires_grad=input_gradient)
    seen = trace(_network(D, L, K), x, loss=_mean_square, precision=precision)

    def matmuls(ledger):
        return {account: work.flops_full for account, work in ledger.where(kind="matmul").accounts().items()}

    assert matmuls(closed.ledger) == matmuls(seen.ledger)
    assert closed.num_parameters == seen.num_parameters
    assert closed.kept_bytes + sum(closed.left_out.values()) == seen.kept_bytes
