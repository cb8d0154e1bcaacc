"""Memory by part: each part by arithmetic, the activation list adds up, and moments follow from the recipe."""

from dataclasses import replace

import pytest

from torchledger.formula import count, memory, num_parameters
from torchledger.formula.memory import buffer_bytes
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, OptimizerSpec, PositionSpec, Recipe
from torchledger.spec.presets import get

D, L, H, F, V, B, T = 32, 3, 4, 80, 97, 2, 16
SPEC = ModelSpec("llama", V, 64, L, D, AttentionSpec(H), MlpSpec(F))
RECIPE = Recipe(batch_size=B, sequence_length=T)


def test_parameters_gradients_state_and_inputs_are_arithmetic():
    prediction = memory(SPEC, RECIPE)
    N = num_parameters(SPEC)
    tensors = 2 + 1 + L * (7 + 2)
    assert prediction.parameter_bytes == prediction.gradient_bytes == 4 * N
    assert prediction.optimizer_state_bytes == 8 * N + 4 * tensors
    assert prediction.input_bytes == 2 * 8 * B * T
    assert prediction.buffer_bytes == 2 * 4 * T * (D // H)


def test_a_llama_layer_keeps_what_its_gradients_need():
    """fp32, fused: input, r, x̂ and y of two norms; q, k, v, output and logsumexp; the sum; four of F; one number."""
    N, stream = B * T, 4 * B * T * D
    norms = 2 * (stream + stream) + 2 * 4 * N
    attention = 3 * stream + stream + 4 * B * H * T
    layer = stream + norms + attention + stream + 4 * 4 * N * F
    end = stream + (4 * N + stream + stream) + 4 * N * V + 4 + 4
    assert memory(SPEC, RECIPE).activation_bytes == L * layer + end


def test_math_attention_keeps_its_weights_instead_of_its_output_and_logsumexp():
    """The output is there in both (the output map's input); scaling queries keeps the number it scales with."""
    fused, math = (
        memory(SPEC, replace(RECIPE, attention=attention)).activation_bytes for attention in ("fused", "math")
    )
    assert math - fused == L * (4 * B * H * T * T + 8 - 4 * B * H * T)


def test_autocast_keeps_a_copy_of_each_weight_and_of_each_input_it_casts():
    prediction = memory(SPEC, replace(RECIPE, precision="bf16"))
    kept = {each.name: each for each in prediction.activations}
    assert kept["layers.*.mlp.up: weight"].total_bytes == L * 2 * D * F
    assert kept["head: weight"].total_bytes == 2 * D * V
    # Queries, keys and values are one product: of one cast input, with their weights side by side.
    size = D // SPEC.attention.num_heads
    rows = (SPEC.attention.num_heads + 2 * SPEC.num_key_value_heads) * size
    assert kept["layers.*.attention.query_key_value: weight"].total_bytes == L * 2 * D * rows
    for name in ("attention.query_key_value", "mlp.gate", "mlp.up"):
        assert kept[f"layers.*.{name}: input"].total_bytes == L * 2 * B * T * D


@pytest.mark.parametrize("name", ["llama-3-8b", "gemma-2-2b", "deepseek-v2-lite", "bloom-560m", "opt-350m"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_list_the_part_and_the_ledger_say_the_same(name, precision, recompute):
    recipe = Recipe(batch_size=2, sequence_length=64, precision=precision, recompute=recompute)
    prediction = memory(get(name), recipe)
    assert prediction.activation_bytes == sum(each.total_bytes for each in prediction.activations)
    assert prediction.activation_bytes == count(get(name), recipe).total.bytes_kept
    assert all(each.kept_by for each in prediction.activations)
    assert bool(prediction.recomputed) == (recompute == "full")


def test_a_micro_batch_keeps_its_share_at_once():
    whole = memory(SPEC, replace(RECIPE, batch_size=4))
    split = memory(SPEC, replace(RECIPE, batch_size=4, accumulation_steps=4))
    one = memory(SPEC, replace(RECIPE, batch_size=1))
    assert split.activation_bytes == one.activation_bytes + 8
    assert split.input_bytes == whole.input_bytes


def test_full_recompute_keeps_each_layers_input_and_numbers():
    prediction = memory(SPEC, replace(RECIPE, recompute="full", attention="math"))
    inside = {each.name: each for each in prediction.activations if each.name.startswith("layers.")}
    assert {name: (each.num_bytes, each.times) for name, each in inside.items()} == {
        "layers.*.input": (4 * B * T * D, L),
        "layers.*.attention.core.query · scale: number": (8, L),
    }
    masks = [each for each in prediction.activations if each.name.startswith("mask")]
    assert [each.total_bytes for each in masks] == [4 * T * T]


def test_the_loss_needs_two_more_sets_of_logits_at_its_fullest():
    prediction = memory(replace(SPEC, vocab_size=50000), RECIPE)
    assert prediction.peak.name == "backward of the loss"
    assert prediction.peak.parts["temporaries"] == 2 * 4 * B * T * 50000 + 2 * 4  # and the loss, and its gradient
    assert prediction.peak.parts["activations"] == prediction.activation_bytes - 2 * 4  # nor is the number of targets
    assert prediction.peak_bytes == (
        prediction.parameter_bytes
        + prediction.buffer_bytes
        + prediction.optimizer_state_bytes
        + prediction.input_bytes
        + prediction.activation_bytes
        + 2 * 4 * B * T * 50000
    )


def test_small_batches_peak_in_the_optimizer_over_lists_of_tensors():
    spec = replace(SPEC, hidden_size=256, mlp=MlpSpec(1024), num_layers=8)
    recipe = Recipe(batch_size=1, sequence_length=2)
    foreach = memory(spec, replace(recipe, optimizer=OptimizerSpec(implementation="foreach")))
    fused = memory(spec, replace(recipe, optimizer=OptimizerSpec(implementation="fused")))
    assert foreach.peak.name == "optimizer step"
    matrices = num_parameters(spec) - (2 * 8 + 1) * 256
    assert foreach.peak.parts["temporaries"] == 4 * matrices + 2 * 4  # and the loss, and the norm
    assert foreach.peak_bytes > fused.peak_bytes


def test_a_tied_matrix_has_three_gradients_for_a_moment():
    """Autograd adds the head's, a view, and the embedding's to a third; under autocast the first takes the other."""
    recipe, matrix = Recipe(batch_size=1, sequence_length=2), 4 * 5000 * D
    spec = replace(SPEC, vocab_size=5000, tied_embeddings=True)
    tied = memory(spec, recipe)
    assert tied.peak.name == "backward of the embedding"
    assert 3 * matrix <= tied.peak.parts["temporaries"] < 3 * matrix + 4 * 4 * 2 * D
    backward = memory(spec, replace(recipe, precision="bf16")).moments[1]
    assert 2 * matrix <= backward.parts["temporaries"] < 3 * matrix


@pytest.mark.parametrize(
    ("change", "num_bytes"),
    [
        ({"position": PositionSpec("rotary")}, 2 * 4 * 10 * 8),
        ({"position": PositionSpec("rotary", rotary_fraction=0.5)}, 2 * 4 * 10 * 4),
        ({"position": PositionSpec("rotary", local_theta=1e4)}, 2 * 2 * 4 * 10 * 8),
        ({"position": PositionSpec("alibi")}, 4 * H),
        ({"position": PositionSpec("learned")}, 0),
        (
            {"position": PositionSpec("none"), "moe": MoeSpec(6, 2, 8, num_leading_dense_layers=1, router_bias=True)},
            4 * 6 * (L - 1),
        ),
    ],
)
def test_buffers_are_tables_slopes_and_router_biases(change, num_bytes):
    assert buffer_bytes(replace(SPEC, **change), 10) == num_bytes


def test_what_the_peak_leaves_out_is_among_the_assumptions():
    assert any("scratch inside kernels" in assumption for assumption in memory(SPEC, RECIPE).assumptions)
