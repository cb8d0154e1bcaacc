import pytest
import torch
from torch import nn
from torch.nn.attention import flex_attention as flex

from torchledger.ledger import HARDWARE_FLOPS, Convention
from torchledger.tracer import trace

B, H, S, h = 2, 2, 256, 16


class Causal(nn.Module):
    """Causal attention of one tensor with itself."""

    def forward(self, q):
        """As flex_attention has it."""
        mask = flex.create_block_mask(lambda _b, _h, q, k: q >= k, None, None, S, S, "cpu")
        return flex.flex_attention(q, q, q, block_mask=mask)


def _ledger(target):
    x = torch.zeros(B, H, S, h, requires_grad=True)
    return trace(
        Causal(), x, loss=lambda y, _: y.sum(), target=target, chip="h100" if target == "cuda" else None
    ).ledger


@pytest.mark.filterwarnings("ignore")  # torch's own, about running it without its compiler
def test_its_backward_pass_is_counted_on_cuda():
    """Forward two products, backward four, under the triangle; executed: five, in three of four blocks."""
    check = flex._validate_device
    ledger = _ledger("cuda").where(kind="attention")
    one = 2 * B * H * S * S * h
    assert ledger.flops == 6 * one
    assert ledger.under(Convention(attention="exact")).flops == 6 * one * (S * (S + 1) // 2) // S**2
    assert ledger.under(HARDWARE_FLOPS).flops == 7 * one * 3 // 4
    assert flex._validate_device is check, "torch's own check is back"


@pytest.mark.filterwarnings("ignore")
def test_the_cpu_has_none():
    """There torch refuses it for real."""
    with pytest.raises(RuntimeError, match="backward on CPU"):
        _ledger("cpu")
