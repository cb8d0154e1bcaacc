"""The norm of gradients that no rank shares; those that ranks share are in tests/agree/test_ranks.py."""

import torch

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
