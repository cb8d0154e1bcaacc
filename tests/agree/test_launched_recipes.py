"""The planner's words for `train` and what the trainer does: one says no where the other does."""

from dataclasses import replace
from typing import get_args

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.launch import launch
from torchledger.spec import OptimizerSpec, Recipe, SpecError, Strategy, presets
from torchledger.spec.recipe import OptimizerKind, Precision
from torchledger.trainer.unbuilt import require_built_recipe

_CHANGES = [
    *({"precision": each} for each in get_args(Precision)),
    *({"optimizer": OptimizerSpec(kind=each)} for each in get_args(OptimizerKind)),
    {"lora_rank": 8},
    {"trainable": ("head",)},
    {"offload_activations": 0.5},
    {"offload_optimizer": True},
]


@pytest.mark.parametrize("change", _CHANGES, ids=str)
def test_a_plan_is_launched_with_train_where_train_runs_it(change):
    """Every format, optimizer, adapter and offload: the planner refuses to say what the trainer refuses to run."""
    recipe = replace(Recipe(batch_size=8), **change)
    said = launch(presets.get("gpt2"), recipe, Strategy(data_parallel=8), parse_cluster("h100x8"), "torchledger")
    try:
        require_built_recipe(recipe)
    except SpecError:
        assert said.cannot
    else:
        assert said.is_exact, said.cannot
