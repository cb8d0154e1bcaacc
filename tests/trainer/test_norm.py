from dataclasses import replace

import pytest
import torch

from torchledger.spec import NormSpec
from torchledger.trainer.norm import Norm, weighted

X = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)) * 3 + 1


def test_rms_norm_is_its_formula():
    """X / sqrt(mean(x²) + epsilon) · weight."""
    norm = Norm(8, NormSpec(epsilon=0.1))
    torch.nn.init.constant_(norm.weight, 2.0)
    torch.testing.assert_close(norm(X), X / (X.square().mean(-1, keepdim=True) + 0.1).sqrt() * 2)


def test_layer_norm_is_its_formula():
    """(x - mean) / sqrt(variance + epsilon) · weight + bias."""
    norm = Norm(8, NormSpec("layer", bias=True, epsilon=0.1))
    torch.nn.init.constant_(norm.weight, 2.0)
    torch.nn.init.constant_(norm.bias, 3.0)
    centred = X - X.mean(-1, keepdim=True)
    torch.testing.assert_close(norm(X), centred / (centred.square().mean(-1, keepdim=True) + 0.1).sqrt() * 2 + 3)


def test_unit_offset_applies_one_plus_the_weight():
    """A weight of 0.5 stored as an offset scales by 1.5."""
    offset, plain = Norm(8, NormSpec(unit_offset=True)), Norm(8, NormSpec())
    torch.nn.init.constant_(offset.weight, 0.5)
    torch.nn.init.constant_(plain.weight, 1.5)
    torch.testing.assert_close(offset(X), plain(X))


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_without_weight_there_is_nothing_to_train(kind):
    """A norm that is not affine has no parameters; RMSNorm never has a bias."""
    assert list(Norm(8, NormSpec(kind, affine=False)).parameters()) == []
    assert [name for name, _ in Norm(8, NormSpec("rms", bias=True)).named_parameters()] == ["weight"]


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_half_precision_inputs_are_normalized_in_the_weights_format(kind):
    """A bfloat16 input gives what its float32 copy gives, in float32."""
    norm = Norm(8, NormSpec(kind))
    torch.nn.init.ones_(norm.weight)
    assert torch.equal(norm(X.bfloat16()), norm(X.bfloat16().float()))
    assert norm(X.bfloat16()).dtype == torch.float32


def test_norms_of_heads_always_have_a_weight():
    """Heads and latents are normalized with a weight and without a bias, whatever the model's norms have."""
    spec = weighted(NormSpec("layer", affine=False))
    assert replace(spec, affine=False) == NormSpec("layer", affine=False)
    assert spec.affine
