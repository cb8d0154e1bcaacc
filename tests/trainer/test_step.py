from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.spec import OptimizerSpec, Recipe
from torchledger.trainer.schedule import learning_rate
from torchledger.trainer.step import build_step, example_batch, micro_batches
from torchledger.trainer.targets import IGNORED

RECIPE = Recipe(
    batch_size=4,
    sequence_length=16,
    num_tokens=4 * 16 * 10,
    optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=3),
)


def losses(spec, recipe, batch, num_steps=5):
    step = build_step(spec, recipe)
    return [step(micro_batches(batch, recipe.accumulation_steps), i).loss.item() for i in range(num_steps)]


@pytest.mark.parametrize("accumulation_steps", [2, 4])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_accumulation_is_one_large_batch(tiny, batch, accumulation_steps, precision):
    """Four micro-batches of one row give the losses of one batch of four, up to rounding, step after step."""
    recipe = replace(RECIPE, precision=precision)
    accumulated = losses(tiny, replace(recipe, accumulation_steps=accumulation_steps), batch)
    assert accumulated == pytest.approx(losses(tiny, recipe, batch), rel=1e-5 if precision == "fp32" else 2e-3)


def test_micro_batches_of_unequal_size_count_by_their_tokens(tiny, batch):
    """A micro-batch of three rows weighs three times one of one row."""
    tokens, targets = batch
    step, whole = build_step(tiny, RECIPE), build_step(tiny, RECIPE)
    parts = [(tokens[:3], targets[:3]), (tokens[3:], targets[3:])]
    for i in range(3):
        assert step(parts, i).loss.item() == pytest.approx(whole([batch], i).loss.item(), rel=1e-5)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_targets_that_do_not_count_weigh_nothing(tiny, batch, recompute):
    """Rows with 15, 1, 0 and 8 targets: accumulation 4 and 2 give the losses of one batch, step after step.

    Means of means would weigh the row with 1 target as much as that with 15.
    """
    tokens, targets = batch
    targets = targets.clone()
    for row, count in enumerate((15, 1, 0, 8)):
        targets[row, count:] = IGNORED
    recipe = replace(RECIPE, recompute=recompute)
    whole = losses(tiny, recipe, (tokens, targets))
    assert whole[0] == pytest.approx(
        torch.nn.functional.cross_entropy(
            build_step(tiny, recipe).model(tokens).flatten(0, 1), targets.flatten(), ignore_index=IGNORED
        ).item()
    )
    for steps in (2, 4):
        accumulated = losses(tiny, replace(recipe, accumulation_steps=steps), (tokens, targets))
        assert accumulated == pytest.approx(whole, rel=1e-5)


def test_the_loss_is_that_before_the_update_and_falls(tiny, batch):
    """The first loss is the initial model's; on one batch it falls with every step."""
    step = build_step(tiny, RECIPE)
    with torch.no_grad():
        initial = step.model(*batch).item()
    got = [step([batch], i).loss.item() for i in range(8)]
    assert got[0] == pytest.approx(initial)
    assert got[-1] < got[0] - 0.3


def test_gradients_are_gone_after_a_step(tiny, batch):
    """Between steps only parameters and optimizer state are alive."""
    step = build_step(tiny, RECIPE)
    step([batch], 0)
    assert all(p.grad is None for p in step.model.parameters())


def test_clipping_bounds_the_update_and_tells_the_norm_before(tiny, batch):
    """With SGD of rate 1 and a limit of 0.1 the weights move by at most 0.1; without a limit no norm is computed."""
    optimizer = OptimizerSpec("sgd", learning_rate=1.0, gradient_clip=0.1, weight_decay=0.0, schedule="constant")
    step = build_step(tiny, replace(RECIPE, optimizer=optimizer))
    before = torch.cat([p.detach().flatten().clone() for p in step.model.parameters()])
    norm = step([batch], 0).gradient_norm.item()
    after = torch.cat([p.detach().flatten() for p in step.model.parameters()])
    assert norm > 0.1
    assert (after - before).norm().item() == pytest.approx(0.1, rel=1e-3)
    free = build_step(tiny, replace(RECIPE, optimizer=replace(optimizer, gradient_clip=0.0)))
    assert free([batch], 0).gradient_norm is None


def test_the_learning_rate_is_that_of_the_step(tiny, batch):
    """A step sets the rate of its own number in every group, whatever ran before it."""
    step = build_step(tiny, RECIPE)
    for i in (7, 0, 3):
        step([batch], i)
        assert {group["lr"] for group in step.optimizer.param_groups} == {learning_rate(RECIPE.optimizer, i, 10)}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_two_runs_have_the_same_bits(any_spec, batch, precision):
    """The same recipe twice gives the same losses, bit for bit, for every architecture."""
    runs = []
    for _ in range(2):
        torch.manual_seed(0)  # dropout
        runs.append(losses(any_spec, replace(RECIPE, precision=precision), batch, num_steps=3))
    assert runs[0] == runs[1]


@pytest.mark.parametrize("implementation", ["fused", "foreach", "loop"])
def test_the_same_step_runs_on_fake_tensors(tiny, implementation):
    """The very same object runs without values, twice, with optimizer state from the first time on."""
    optimizer = replace(RECIPE.optimizer, implementation=implementation)
    recipe = replace(RECIPE, accumulation_steps=2, precision="bf16", optimizer=optimizer)
    with FakeTensorMode():
        step = build_step(tiny, recipe, initialized=False)
        batches = example_batch(recipe)
        assert [tuple(tokens.shape) for tokens, _ in batches] == [(2, 16), (2, 16)]
        results = [step(batches, i) for i in range(2)]
    assert all(result.loss.shape == () and result.gradient_norm.shape == () for result in results)
    assert len(step.optimizer.state) == len(list(step.model.parameters()))


def test_micro_batches_are_views(batch):
    """Cutting a batch copies nothing."""
    parts = micro_batches(batch, 2)
    assert [tokens.data_ptr() for tokens, _ in parts] == [batch[0].data_ptr(), batch[0][2:].data_ptr()]
