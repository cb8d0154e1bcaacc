import pytest
import torch

from torchledger.trainer.clipping import clip


def parameters(dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    found = [torch.nn.Parameter(torch.zeros(shape, dtype=dtype)) for shape in ((30, 20), (7,), (1,))]
    for parameter in found[:2]:
        parameter.grad = torch.randn(parameter.shape, generator=generator).to(dtype)
    return found


@pytest.mark.parametrize("limit", [0.5, 1000.0])
def test_fp32_gradients_are_clipped_as_torch_does_bit_for_bit(limit):
    mine, theirs = parameters(torch.float32), parameters(torch.float32)
    assert torch.equal(clip(mine, limit), torch.nn.utils.clip_grad_norm_(theirs, limit))
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(mine[:2], theirs[:2], strict=True))


def test_the_norm_of_bf16_gradients_has_the_digits_of_fp32():
    """It is the root of the sum of squares of the rounded gradients, not that root rounded to BF16."""
    found = parameters(torch.bfloat16)
    exact = torch.cat([p.grad.double().flatten() for p in found[:2]]).norm().item()
    norm = clip(found, 1.0)
    assert norm.dtype == torch.float32
    assert norm.item() == pytest.approx(exact, rel=1e-6)
    clipped = torch.cat([p.grad.double().flatten() for p in found[:2]]).norm().item()
    assert clipped == pytest.approx(1.0, rel=2.0**-8)


def test_without_any_gradient_the_norm_is_zero():
    """As torch has it."""
    found = [torch.nn.Parameter(torch.zeros(3))]
    assert clip(found, 1.0) == torch.nn.utils.clip_grad_norm_(found, 1.0) == 0
