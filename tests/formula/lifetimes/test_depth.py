"""A few of many equal layers stand for all."""

from dataclasses import replace

import pytest

from torchledger.formula import memory
from torchledger.formula.lifetimes import depth
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, OptimizerSpec, Recipe

SPEC = ModelSpec("deep", 97, 64, 11, 32, AttentionSpec(4, 2), MlpSpec(48))
RECIPE = Recipe(batch_size=4, sequence_length=16)


def test_three_layers_and_the_last_are_walked():
    walked = [(each.index, each.skipped) for each in depth.depths(SPEC, RECIPE)]
    assert walked == [(0, 0), (1, 0), (2, 7), (10, 0)]  # seven of eleven are not


def test_layers_that_differ_are_all_walked():
    """Windows that alternate, every other layer run again, and numbers of each layer in a load-balancing loss."""
    windows = replace(SPEC, attention=replace(SPEC.attention, window_pattern=(4, 0)))
    experts = replace(SPEC, moe=MoeSpec(3, 1, 16))
    for spec, recipe in (
        (windows, RECIPE),
        (SPEC, replace(RECIPE, recompute="full", recompute_every=2)),
        (experts, replace(RECIPE, load_balance=0.1)),
    ):
        assert [each.index for each in depth.depths(spec, recipe)] == list(range(11))


@pytest.mark.parametrize("accumulation_steps", [1, 2])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bf16", "recompute": "full"},
        {"precision": "bf16-pure", "optimizer": OptimizerSpec("sgd", "foreach")},
        {"lora_rank": 2, "precision": "bf16"},
        {"trainable": ("layers.3-9",), "optimizer": OptimizerSpec("adamw", "foreach")},
    ],
    ids=str,
)
def test_skipping_changes_no_byte_of_any_moment(monkeypatch, changes, accumulation_steps):
    recipe = replace(RECIPE, accumulation_steps=accumulation_steps, **changes)
    short = memory(SPEC, recipe).moments
    monkeypatch.setattr(depth, "_FIRST", 100)
    assert len(list(depth.depths(SPEC, recipe))) == 11
    assert [(each.name.partition(" ")[0], each.total_bytes) for each in short] == [
        (each.name.partition(" ")[0], each.total_bytes) for each in memory(SPEC, recipe).moments
    ]
