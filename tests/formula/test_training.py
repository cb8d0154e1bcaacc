"""Frozen parts and adapters: what has no gradient costs none."""

from dataclasses import replace

import pytest

from torchledger.formula import count, memory, parameters, parts
from torchledger.formula.training import layer_runs, trains
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

D, F, V, L = 32, 64, 96, 4
SPEC = ModelSpec("s", V, 64, L, D, AttentionSpec(4), MlpSpec(F))
RECIPE = Recipe(batch_size=2, sequence_length=16)
TOKENS = 2 * 16
WEIGHTS = 4 * D * D + 3 * D * F


def _matmuls(recipe, of):
    ledger = count(SPEC, recipe).where(phase="backward", kind={"matmul"})
    return sum(line.total.flops_full for line in ledger.lines if line.gradient_of == of)


def test_matrices_that_are_multiplied_as_one_have_one_adapter():
    """Megatron's kernels: one product for queries, keys and values, beside it A [2, D] and B [3 D, 2]."""
    recipe = replace(RECIPE, lora_rank=2, lora_targets=("query", "key", "value"))
    layer = next(part for part in parts(SPEC, recipe, kernels="megatron") if part.kind == "layer")
    found = {line.module: line for line in layer.lines if line.phase == "forward" and line.kind == "matmul"}
    adapters = {name.removeprefix("layers.*.") for name in found if "lora" in name}
    assert adapters == {"attention.query_key_value.lora_a", "attention.query_key_value.lora_b"}
    up = found["layers.*.attention.query_key_value.lora_b"]
    assert up.work.flops_full == 2 * TOKENS * 2 * 3 * D
    assert found["layers.*.mlp.gate_up"].work.flops_full == 2 * TOKENS * D * 2 * F


def test_a_frozen_model_with_a_trained_head_runs_no_backward_below_it():
    """One weight gradient, that of the head; nothing asks for an input gradient."""
    recipe = replace(RECIPE, trainable=("head",))
    assert _matmuls(recipe, "weight") == 2 * TOKENS * D * V
    assert _matmuls(recipe, "input") == 2 * TOKENS * D * V  # of the head, for the final norm's weight
    frozen = [part for part in parts(SPEC, recipe) if part.kind == "layer"]
    assert [(part.name, part.times) for part in frozen] == [("frozen layer", L)]
    assert {line.phase for line in frozen[0].lines} == {"forward"}
    assert frozen[0].activations == ()
    assert frozen[0].backward_temporary_bytes == 0


def test_gradients_flow_down_to_the_first_trained_layer_and_no_further():
    recipe = replace(RECIPE, trainable=("layers.2-3",))
    assert _matmuls(recipe, "weight") == 2 * 2 * TOKENS * WEIGHTS
    # layer 3 needs all its input gradients, layer 2 those between its first norm and its end, and the head its own
    inside = WEIGHTS
    assert _matmuls(recipe, "input") == 2 * 2 * TOKENS * inside + 2 * TOKENS * D * V
    runs = [(run.first, run.count, training.trains, training.reached) for run, training in layer_runs(SPEC, recipe)]
    assert runs == [(0, 2, False, False), (2, 1, True, False), (3, 1, True, True)]


def test_a_frozen_layer_above_a_trained_embedding_passes_gradients_on():
    """Input gradients of everything, weight gradients of nothing."""
    recipe = replace(RECIPE, trainable=("embedding",))
    assert _matmuls(recipe, "weight") == 0
    assert _matmuls(recipe, "input") == 2 * TOKENS * (L * WEIGHTS + D * V)


def test_frozen_parameters_have_no_gradient_and_no_state():
    recipe = replace(RECIPE, trainable=("head",))
    found = memory(SPEC, recipe)
    assert found.gradient_bytes == 4 * (D + V * D)
    assert found.optimizer_state_bytes == 2 * 4 * (D + V * D) + 2 * 4
    assert found.parameter_bytes == memory(SPEC, RECIPE).parameter_bytes


RANK = 4


def test_adapters_are_two_matrices_beside_every_linear_layer():
    """r·(inputs + outputs) each (LoRA, arXiv:2106.09685, section 4.1)."""
    recipe = replace(RECIPE, lora_rank=RANK)
    adapters = L * RANK * (4 * (D + D) + 3 * (D + F))
    assert memory(SPEC, recipe).gradient_bytes == 4 * adapters
    trained = [each for each in parameters(SPEC, recipe) if not each.frozen]
    assert sum(each.total for each in trained) == adapters
    assert all(".lora_" in each.name for each in trained)


def test_adapters_save_the_weight_gradients_of_what_they_stand_beside():
    """A third of the matmuls' FLOPs goes; the adapters' own are small, and the first layer needs no input gradient."""
    recipe = replace(RECIPE, lora_rank=RANK)
    assert _matmuls(recipe, "weight") == 2 * TOKENS * L * RANK * (4 * (D + D) + 3 * (D + F))
    names = [part.name for part in parts(SPEC, recipe)]
    assert names == ["embedding", "layer", "layer from 1", "head"]
    assert not trains(recipe, "head")


@pytest.mark.parametrize("recipe", [replace(RECIPE, lora_rank=RANK), replace(RECIPE, trainable=("layers.1", "head"))])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_parts_still_add_up(recipe, recompute):
    recipe = replace(recipe, recompute=recompute)
    found = parts(SPEC, recipe)
    assert sum(part.kept_bytes * part.times for part in found) == memory(SPEC, recipe).activation_bytes
    flops = sum(line.total.flops_full * part.times for part in found for line in part.lines)
    steps = count(SPEC, recipe)
    assert flops == sum(line.total.flops_full for line in steps.lines if line.phase != "optimizer")
