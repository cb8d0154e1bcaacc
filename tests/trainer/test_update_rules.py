import pytest
import torch

from torchledger.trainer.update_rules import Adafactor, AdamW, Lion, Sgd


def moved(rule, steps, *, shape=(6, 4), rate=0.01, decay=0.1):
    """A parameter after some updates by drawn gradients, its state, and the same by torch's `reference`."""
    generator = torch.Generator().manual_seed(0)
    parameter = torch.randn(shape, generator=generator)
    gradients = [torch.randn(shape, generator=generator) for _ in range(steps)]
    mine = parameter.clone()
    state = rule.initial_state(mine, torch.float32)
    for gradient in gradients:
        rule.update(mine, gradient, state, rate, decay)
    return parameter, gradients, mine, state


def by_torch(optimizer, parameter, gradients, **options):
    theirs = torch.nn.Parameter(parameter.clone())
    other = optimizer([theirs], **options)
    for gradient in gradients:
        theirs.grad = gradient.clone()
        other.step()
    return theirs.detach()


def test_lion_is_its_paper_step_by_step():
    """U = sign(0.9·m + 0.1·g), p·(1 - lr·wd) - lr·u, m = 0.99·m + 0.01·g, from m = 0."""
    parameter, gradients, mine, state = moved(Lion(0.9, 0.99), 3)
    expected, mean = parameter.clone(), torch.zeros_like(parameter)
    for gradient in gradients:
        expected = expected * (1 - 0.01 * 0.1) - 0.01 * torch.sign(0.9 * mean + 0.1 * gradient)
        mean = 0.99 * mean + 0.01 * gradient
    torch.testing.assert_close(mine, expected)
    torch.testing.assert_close(state["exp_avg"], mean)


@pytest.mark.parametrize("shape", [(6, 4), (5,)])
@pytest.mark.parametrize("rate", [0.01, 0.9])
def test_adafactor_is_torchs_own_without_reading_the_device(shape, rate):
    """Matrices with a mean of squares for each row and column, vectors with one for each element."""
    parameter, gradients, mine, _ = moved(Adafactor(), 4, shape=shape, rate=rate)
    theirs = by_torch(torch.optim.Adafactor, parameter, gradients, lr=rate, weight_decay=0.1, foreach=False)
    torch.testing.assert_close(mine, theirs)


def test_sgd_with_momentum_and_decay_is_torchs():
    parameter, gradients, mine, _ = moved(Sgd(0.9), 4)
    theirs = by_torch(torch.optim.SGD, parameter, gradients, lr=0.01, momentum=0.9, weight_decay=0.1)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize(("fused", "foreach"), [(True, False), (False, True), (False, False)])
def test_adamw_is_torchs_bit_for_bit(fused, foreach):
    parameter, gradients, mine, _ = moved(AdamW(0.9, 0.95, 1e-8, fused, foreach), 4)
    options = {"betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1, "fused": fused, "foreach": foreach}
    assert torch.equal(mine, by_torch(torch.optim.AdamW, parameter, gradients, lr=0.01, **options))
