from dataclasses import replace

import pytest
import torch

from torchledger.spec import OptimizerSpec, Recipe
from torchledger.trainer.optimizer import load_optimizer_state, optimizer_state
from torchledger.trainer.step import build_step

RECIPE = Recipe(
    batch_size=4,
    sequence_length=16,
    num_tokens=4 * 16 * 10,
    precision="fp16",
    optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=2),
)


@pytest.mark.parametrize("kind", ["adamw", "lion"])
def test_losses_are_those_of_fp32_up_to_rounding(tiny, batch, kind):
    """The scale is taken out before gradients are clipped: norms and losses are FP32's to three digits."""
    found = []
    for precision in ("fp16", "fp32"):
        recipe = replace(
            RECIPE, precision=precision, optimizer=replace(RECIPE.optimizer, kind=kind, learning_rate=1e-3)
        )
        step = build_step(tiny, recipe)
        results = [step([batch], number) for number in range(4)]
        found.append([each.loss.item() for each in results] + [each.gradient_norm.item() for each in results])
    assert found[0] == pytest.approx(found[1], rel=3e-3)


def test_a_gradient_that_overflows_changes_nothing_but_the_scale(tiny, batch):
    """At a scale of 2⁴⁰ gradients are infinite: weights stay, the scale halves, and nobody calls it a broken run."""
    step, asked = build_step(tiny, RECIPE), []
    step([batch], 0)
    step.load({"loss_scale": torch.tensor(2.0**40), "loss_scale_age": torch.tensor(0)})
    before = [p.detach().clone() for p in step.model.parameters()]
    step([batch], 1, lambda _, norm: asked.append(norm) or True)
    assert asked == [None]
    assert step.state()["loss_scale"].item() == 2.0**39
    assert all(torch.equal(a, b) for a, b in zip(before, step.model.parameters(), strict=True))


def test_the_scale_goes_on_where_it_was(tiny, batch):
    """Weights, optimizer and scale put into another step: the next losses are the same bit for bit."""
    first, second = build_step(tiny, RECIPE), build_step(tiny, RECIPE)
    for number in range(3):
        first([batch], number)
    second.model.load_state_dict(first.model.state_dict())
    state = {name: t.clone() for name, t in optimizer_state(first.model, first.optimizer).items()}
    load_optimizer_state(second.model, second.optimizer, state)
    second.load(first.state())
    losses = [[step([batch], number).loss.item() for number in (3, 4)] for step in (first, second)]
    assert losses[0] == losses[1]
    assert all(torch.equal(first.state()[name], second.state()[name]) for name in first.state())


def test_other_precisions_have_nothing_of_it(tiny):
    assert build_step(tiny, replace(RECIPE, precision="bf16")).state() == {}


def test_an_overflow_on_another_rank_leaves_the_update_out_here_too(tiny, batch):
    """Own gradients are finite, and another rank tells of one that is not: weights stay, the scale halves."""
    step = build_step(tiny, RECIPE)
    scale = step.loss_scale
    before = [p.detach().clone() for p in step.model.parameters()]
    found = []
    for tell in (lambda other: other.fill_(1.0), lambda other: other):
        halved = scale.state()["loss_scale"].item()
        scale.scaled(step.model(*batch)).backward()
        scale.unscale(step.optimizer, tell)
        scale.step(step.optimizer)
        scale.adapt()
        step.optimizer.zero_grad()
        moved = any(not torch.equal(old, new) for old, new in zip(before, step.model.parameters(), strict=True))
        found.append((moved, scale.state()["loss_scale"].item() / halved))
    assert found == [(False, 0.5), (True, 1.0)]
