import math

import pytest
import torch

from torchledger.auditor.precision_recipe import Recipe, candidates, checked
from torchledger.auditor.precision_scale import LossScale
from torchledger.auditor.precision_step import Step


def step(loss, *values, updates=None):
    gradients = {"w": torch.tensor(values)}
    return Step(loss, gradients, {} if updates is None else {"w": torch.tensor(updates)})


def test_differences_are_of_all_numbers_as_one_vector():
    """(3, 4) against (4, 3): cosine 24/25, difference √2 over 5; losses 1.01 and 1 differ by 1 %."""
    check = checked(Recipe("bf16", {}), step(1.01, 3.0, 4.0), step(1.0, 4.0, 3.0))
    assert check.loss_difference == pytest.approx(0.01)
    assert check.gradient_cosine == pytest.approx(24 / 25)
    assert check.gradient_difference == pytest.approx(2**0.5 / 5)
    assert check.update_cosine is None


def test_gradients_too_small_to_be_squared_in_fp32_are_compared():
    """1e-30 squared is 0 in FP32, and the cosine of two such gradients is 1 all the same."""
    check = checked(Recipe("bf16", {}), step(1.0, 1e-30), step(1.0, 1e-30))
    assert check.gradient_cosine == pytest.approx(1.0)
    assert check.holds


def test_a_recipe_holds_by_loss_gradients_and_updates():
    """A loss off by more than 2 %, gradients turned or lost, NaN, or updates that go elsewhere: it does not hold."""
    reference = step(1.0, 1.0, 0.0, updates=(1.0, 0.0))
    holding = {
        "like FP32": step(1.01, 1.0, 0.1, updates=(1.0, 0.5)),
        "loss": step(1.03, 1.0, 0.0, updates=(1.0, 0.0)),
        "turned": step(1.0, 1.0, 1.0, updates=(1.0, 0.0)),
        "lost": step(1.0, 0.0, 0.0, updates=(1.0, 0.0)),
        "nan": step(math.nan, 1.0, 0.0, updates=(1.0, 0.0)),
        "gradient nan": step(1.0, math.nan, 0.0, updates=(1.0, 0.0)),
        "updates": step(1.0, 1.0, 0.0, updates=(0.0, 1.0)),
    }
    checks = {name: checked(Recipe("bf16", {}), each, reference) for name, each in holding.items()}
    assert [name for name, check in checks.items() if check.holds] == ["like FP32"]
    assert checks["updates"].is_near


def test_a_recipe_is_told_in_words():
    """Its format, loss scale, what stays in FP32 and what weights are stored in."""
    assert Recipe("fp32", {}).told() == "FP32 throughout"
    assert Recipe("fp32", {}, stored="BF16").told() == "weights in BF16, no autocast"
    told = Recipe("fp16", {"a": "why", "b": "why"}, 2.0**12).told()
    assert told == "autocast to FP16, loss scale 2^12, 2 modules in FP32; weights in FP32"


def test_a_run_in_fp16_is_advised_fp16_first_with_a_quarter_of_the_largest_scale():
    """Elsewhere BF16 is first; FP32 is last, always."""
    scale = LossScale(18, 0.5, 0.0)
    recipes = list(candidates("fp16", lambda _: {}, scale))
    assert [(each.precision, each.loss_scale) for each in recipes] == [("fp16", 2.0**16), ("bf16", 1), ("fp32", 1)]
    assert [each.precision for each in candidates("fp32", lambda _: {}, scale)] == ["bf16", "fp32"]
