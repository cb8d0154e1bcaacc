"""The norm of gradients that no rank shares; those that ranks share are in tests/agree/test_ranks.py."""

import pytest
import torch

from torchledger.trainer.clipping import clip
from torchledger.trainer.gradient_norm import clip_gradients, gradient_norm


def test_whole_gradients_have_torchs_own_norm_bit_for_bit():
    """Where nothing is sharded nothing is sent, and the result is `clip_grad_norm_`'s, gradients included."""
    generator = torch.Generator().manual_seed(0)
    ours, theirs = ([torch.nn.Parameter(torch.zeros(n)) for n in (3, 50, 7)] for _ in range(2))
    for mine, other in zip(ours, theirs, strict=True):
        mine.grad = torch.randn(mine.shape, generator=generator)
        other.grad = mine.grad.clone()
    assert gradient_norm([p.grad for p in ours]).item() == clip_gradients(ours, 1.0).item()
    assert torch.nn.utils.clip_grad_norm_(theirs, 1.0) > 1
    assert all(torch.equal(mine.grad, other.grad) for mine, other in zip(ours, theirs, strict=True))


def test_gradients_in_16_bit_have_their_norm_in_fp32():
    """404 numbers 0.05 in BF16: √404 times the nearest to 0.05, not that rounded to the 8 bits of BF16."""
    parameter = torch.nn.Parameter(torch.zeros(404, dtype=torch.bfloat16))
    parameter.grad = torch.full_like(parameter, 0.05)
    value = parameter.grad[0].item()
    norm = gradient_norm([parameter.grad])
    assert norm.item() == pytest.approx(404**0.5 * value, rel=1e-6)
    assert norm.item() != norm.bfloat16().item()
    assert clip(iter([parameter]), 100.0).item() == norm.item()
