"""What the trainer does not do it refuses by name, and never runs as something else."""

from dataclasses import fields, replace

import pytest

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe, SpecError
from torchledger.trainer.precision import BUILT
from torchledger.trainer.step import build_step
from torchledger.trainer.unbuilt import require_built_recipe

SPEC = ModelSpec("tiny", 50, 16, 2, 16, AttentionSpec(2), MlpSpec(24))
UNBUILT = {
    "precision": "mxfp8",
    "offload_activations": 0.5,
    "offload_optimizer": True,
}


@pytest.mark.parametrize("name", UNBUILT)
def test_a_recipe_that_would_run_as_another_is_refused(name):
    with pytest.raises(SpecError, match=name):
        build_step(SPEC, replace(Recipe(), **{name: UNBUILT[name]}))


def test_pieces_of_a_loss_are_refused_with_a_loss_scale():
    """Their gradients are made in FP16 before the scale reaches them, and small ones would be 0."""
    with pytest.raises(SpecError, match=r"loss_chunk.*loss scale"):
        require_built_recipe(Recipe(precision="fp16", loss_chunk=64))


def test_all_of_it_is_told_at_once():
    with pytest.raises(SpecError) as raised:
        require_built_recipe(replace(Recipe(), **UNBUILT))
    assert all(name in str(raised.value) for name in UNBUILT)


def test_what_is_built_is_not_refused():
    """Every precision that the trainer has passes."""
    for precision in BUILT:
        recipe = Recipe(precision=precision, recompute="full", optimizer=OptimizerSpec("sgd"))
        assert require_built_recipe(recipe) is None, precision


def test_every_field_of_a_recipe_is_either_done_or_refused():
    """A new field has to be thought of here: it is one that the trainer does, or it is in the table above."""
    done = {"batch_size", "sequence_length", "accumulation_steps", "attention", "num_tokens", "seed", "mup_base_size"}
    done |= {"document_mask", "initialization", "load_balance", "lora_rank", "lora_targets", "loss_chunk"}
    done |= {"optimizer", "recompute", "recompute_every", "recompute_layers", "trainable"}
    assert {field.name for field in fields(Recipe)} == done | set(UNBUILT)
