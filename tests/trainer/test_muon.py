import pytest
import torch

from torchledger.trainer.muon import Muon, is_orthogonalized, orthogonal


@pytest.mark.parametrize("shape", [(8, 24), (24, 8), (16, 16)])
def test_muon_is_torchs_bit_for_bit(shape):
    """With updates scaled to AdamW's size (0.2·√max(out, in)) torch.optim.Muon makes the same weights."""
    generator = torch.Generator().manual_seed(0)
    parameter, rule = torch.randn(shape, generator=generator), Muon()
    mine, theirs = parameter.clone(), torch.nn.Parameter(parameter.clone())
    state = rule.initial_state(mine, torch.float32)
    other = torch.optim.Muon([theirs], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    for _ in range(3):
        theirs.grad = torch.randn(shape, generator=generator)
        rule.update(mine, theirs.grad, state, 0.01, 0.1)
        other.step()
    assert torch.equal(mine, theirs.detach())


@pytest.mark.parametrize("shape", [(8, 24), (24, 8)])
def test_singular_values_come_near_one(shape):
    """Whatever the singular values were (here 1 and 20 times as large), five steps bring them between 0.6 and 1.3."""
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    matrix[:4] *= 20
    values = torch.linalg.svdvals(orthogonal(matrix).float())
    assert values.min() > 0.6
    assert values.max() < 1.3


def test_tables_heads_and_vectors_are_not_muons():
    matrix, vector = torch.zeros(2, 2), torch.zeros(2)
    assert is_orthogonalized("layers.0.mlp.up.weight", matrix)
    assert not is_orthogonalized("layers.0.mlp_norm.weight", vector)
    assert not is_orthogonalized("embedding.weight", matrix)
    assert not is_orthogonalized("head.weight", matrix)
