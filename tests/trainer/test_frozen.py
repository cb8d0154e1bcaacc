"""What a recipe leaves frozen stays as it is, and adapters begin as if they were not there."""

import pytest
import torch

from torchledger.formula.parameters import parameters
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, SpecError
from torchledger.trainer.step import build_step, example_batch

SPEC = ModelSpec("tiny", 50, 16, 3, 16, AttentionSpec(2), MlpSpec(24), head_bias=True)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("asked", [(), ("head",), ("embedding",), ("layers",), ("layers.1",), ("layers.0-1", "head")])
def test_a_step_moves_what_the_formula_calls_trained_and_nothing_else(asked, tied):
    spec = ModelSpec("tiny", 50, 16, 3, 16, AttentionSpec(2), MlpSpec(24), head_bias=True, tied_embeddings=tied)
    recipe = Recipe(batch_size=2, sequence_length=8, trainable=asked, num_tokens=160)
    step = build_step(spec, recipe)
    before = {name: p.detach().clone() for name, p in step.model.named_parameters()}
    step(example_batch(recipe), 0)
    moved = {name for name, p in step.model.named_parameters() if not torch.equal(p, before[name])}
    expected = {each.name for each in parameters(spec, recipe, expand=True) if not each.frozen and not each.tied_to}
    assert moved == expected


def test_only_adapters_move_and_at_first_they_change_nothing():
    plain = build_step(SPEC, Recipe(batch_size=2, sequence_length=8, num_tokens=160))
    recipe = Recipe(batch_size=2, sequence_length=8, lora_rank=2, num_tokens=160)
    step, tokens = build_step(SPEC, recipe), torch.arange(16).reshape(2, 8)
    with torch.no_grad():
        assert torch.equal(step.model(tokens), plain.model(tokens))
    before = {name: p.detach().clone() for name, p in step.model.named_parameters()}
    step(example_batch(recipe), 0)
    step(example_batch(recipe), 1)
    moved = {name for name, p in step.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == {name for name in before if ".lora_" in name}
    assert len(moved) == 2 * 7 * 3  # two matrices beside each of a layer's seven


@pytest.mark.parametrize("targets", [("query", "value"), ("down",), ("query", "key", "value", "output")])
def test_adapters_stand_beside_the_named_layers_alone(targets):
    """Those parameters move that the formula lists, two matrices beside each named layer of 3."""
    recipe = Recipe(batch_size=2, sequence_length=8, lora_rank=2, lora_targets=targets, num_tokens=160)
    step = build_step(SPEC, recipe)
    before = {name: p.detach().clone() for name, p in step.model.named_parameters()}
    step(example_batch(recipe), 0)
    step(example_batch(recipe), 1)
    moved = {name for name, p in step.model.named_parameters() if not torch.equal(p, before[name])}
    expected = {each.name for each in parameters(SPEC, recipe, expand=True) if not each.frozen and not each.tied_to}
    assert moved == expected
    assert len(moved) == 2 * len(targets) * 3


def test_adapters_beside_layers_that_are_not_there_are_refused():
    """`key_value_up` is a layer of latent attention, and this model has another."""
    with pytest.raises(SpecError, match="lora_targets: tiny has none of key_value_up"):
        build_step(SPEC, Recipe(batch_size=2, sequence_length=8, lora_rank=2, lora_targets=("key_value_up",)))


def test_where_nothing_would_be_trained_that_is_said():
    with pytest.raises(SpecError, match="trainable: prediction has no parameters in tiny"):
        build_step(SPEC, Recipe(trainable=("prediction",)))
