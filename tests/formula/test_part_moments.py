"""The moments of a step on any kernels."""

from dataclasses import replace

import pytest

from torchledger.formula import memory, parts
from torchledger.formula.part_moments import in_order
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe

SPEC = ModelSpec("s", 96, 64, 5, 32, AttentionSpec(4, window_pattern=(8, 0)), MlpSpec(64))
RECIPE = Recipe(batch_size=2, sequence_length=32, precision="bf16-master")


def test_parts_stand_in_the_order_of_the_depth():
    names = [part.name for part in in_order(parts(SPEC, RECIPE, kernels="flash"))]
    local, full = "layer window 8", "layer"
    assert names == ["embedding", local, full, local, full, local, "head"]


def test_the_last_layer_finds_everything_kept_and_the_first_every_gradient():
    found = memory(SPEC, RECIPE, kernels="flash")
    moments = {moment.name: moment.parts for moment in found.moments}
    assert moments["forward of the head"]["activations"] == found.activation_bytes
    assert moments["backward of the embedding"]["gradients"] == found.gradient_bytes
    assert moments["forward of the head"]["gradients"] == 0
    assert moments["optimizer step"]["gradients"] == found.gradient_bytes
    assert moments["optimizer step"]["master weights"] == found.master_bytes == 2 * found.parameter_bytes


def test_later_micro_batches_find_the_gradients_of_earlier_ones():
    found = memory(SPEC, replace(RECIPE, accumulation_steps=2), kernels="flash")
    assert {moment.parts["gradients"] for moment in found.moments} == {found.gradient_bytes}


@pytest.mark.parametrize(
    ("optimizer", "expected"),
    [
        (OptimizerSpec(), 4 * 96 * 32),  # the 16-bit gradient of the largest matrix in FP32
        (OptimizerSpec("adafactor"), 2 * 4 * 96 * 32),  # variances and update of the largest matrix
        (OptimizerSpec("muon"), 8 * 96 * 32 + 4 * 32 * 32),
    ],
)
def test_what_an_optimizer_holds_for_one_matrix(optimizer, expected):
    found = memory(SPEC, replace(RECIPE, optimizer=optimizer), kernels="flash")
    assert found.moments[-1].parts["temporaries: optimizer"] == expected
