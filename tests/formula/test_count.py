"""The ledger of a step, held against arithmetic that a reader can check."""

import pytest

from torchledger.formula import count, default_recipe, memory, num_parameters
from torchledger.ledger import HARDWARE_FLOPS, Convention
from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    OptimizerSpec,
    PositionSpec,
    Recipe,
)
from torchledger.spec.presets import get

D, L, H, K, d, F, V = 32, 3, 4, 2, 8, 80, 97
B, T = 2, 16
LLAMA = ModelSpec("llama", V, 64, L, D, AttentionSpec(H, K), MlpSpec(F))
RECIPE = Recipe(batch_size=B, sequence_length=T)
LINEARS = L * (2 * D * H * d + 2 * D * K * d + 3 * D * F) + D * V
FORWARD = 2 * B * T * LINEARS + L * 2 * B * H * T * T * (d + d)


def _flops(spec, recipe, convention=None):
    ledger = count(spec, recipe, convention=convention)
    return {phase: lines.flops for phase, lines in ledger.by("phase").items()}


def test_forward_is_two_flops_a_weight_and_token_and_the_square_of_attention():
    assert _flops(LLAMA, RECIPE)["forward"] == FORWARD


def test_backward_is_twice_the_forward_half_for_inputs_half_for_weights():
    backward = count(LLAMA, RECIPE).where(phase="backward", kind="matmul")
    assert backward.where(gradient_of="input").flops == backward.where(gradient_of="weight").flops
    assert _flops(LLAMA, RECIPE)["backward"] == 2 * FORWARD


def test_precision_and_attention_kernel_change_no_contraction():
    for precision in ("fp32", "bf16"):
        for attention in ("math", "fused"):
            recipe = Recipe(batch_size=B, sequence_length=T, precision=precision, attention=attention)
            assert _flops(LLAMA, recipe) == {"forward": FORWARD, "backward": 2 * FORWARD, "optimizer": 0}


def test_exact_attention_counts_the_pairs_below_the_diagonal():
    pairs = sum(i + 1 for i in range(T))
    exact = 2 * B * T * LINEARS + L * 2 * B * H * pairs * (d + d)
    assert _flops(LLAMA, RECIPE, Convention(attention="exact"))["forward"] == exact


def test_a_window_narrows_exact_attention_in_its_layers_only():
    spec = ModelSpec("w", V, 64, 4, D, AttentionSpec(H, K, window_pattern=(5, 0)), MlpSpec(F))
    narrow, wide = sum(min(i + 1, 5) for i in range(T)), sum(i + 1 for i in range(T))
    attention = count(spec, RECIPE, convention=Convention(attention="exact")).where(phase="forward", kind="attention")
    assert attention.flops == 2 * B * H * (d + d) * (2 * narrow + 2 * wide)
    assert [line.times for line in attention] == [2, 2]


def test_executed_attention_runs_a_fifth_product_in_the_fused_backward_only():
    fifth = L * 2 * B * H * T * T * d
    for attention, more in (("fused", fifth), ("math", 0)):
        recipe = Recipe(batch_size=B, sequence_length=T, attention=attention)
        backward = _flops(LLAMA, recipe, Convention(attention="executed"))["backward"]
        assert backward == 2 * FORWARD + more


def test_full_recompute_runs_each_layer_again_but_for_its_last_map():
    """The second run stops at the last tensor that the backward pass needs: the input of `mlp.down`."""
    recipe = Recipe(batch_size=B, sequence_length=T, recompute="full")
    layers = FORWARD - 2 * B * T * D * V
    ledger = count(LLAMA, recipe)
    assert ledger.under(HARDWARE_FLOPS).where(phase="recompute").flops == layers - L * 2 * B * T * D * F
    assert ledger.where(phase="recompute").flops == 0
    assert ledger.flops == count(LLAMA, RECIPE).flops


def test_accumulation_splits_the_batch_and_changes_no_contraction():
    split = Recipe(batch_size=B, sequence_length=T, accumulation_steps=2)
    assert count(LLAMA, split).flops == count(LLAMA, RECIPE).flops
    one = {line.shape for line in count(LLAMA, RECIPE).where(kind="matmul", phase="forward")}
    many = {line.shape for line in count(LLAMA, split).where(kind="matmul", phase="forward")}
    assert {dict(shape)["m"] for shape in one} == {B * T}
    assert {dict(shape)["m"] for shape in many} == {B * T // 2}


def test_accumulation_adds_each_later_gradient():
    split = count(LLAMA, Recipe(batch_size=4, sequence_length=T, accumulation_steps=4))
    (line,) = split.where(op="gradient_accumulation", module="")
    assert line.total.flops_full == (4 - 1) * num_parameters(LLAMA)


def test_equal_layers_are_one_line_with_their_number():
    up = count(LLAMA, RECIPE).where(module="layers.*.mlp.up", phase="forward", kind="matmul")
    assert [(line.times, line.work.flops_full) for line in up] == [(L, 2 * B * T * D * F)]


def test_every_linear_map_has_its_own_lines():
    modules = {line.module for line in count(LLAMA, RECIPE).where(kind="matmul")}
    assert modules == {
        *(f"layers.*.attention.{name}" for name in ("query", "key", "value", "output")),
        *(f"layers.*.mlp.{name}" for name in ("gate", "up", "down")),
        "head",
    }
    assert {line.module for line in count(LLAMA, RECIPE).where(kind="attention")} == {"layers.*.attention.core"}


def test_matmuls_run_in_bf16_under_autocast_and_norms_in_fp32():
    ledger = count(LLAMA, Recipe(batch_size=B, sequence_length=T, precision="bf16"))
    assert {line.number_format for line in ledger.where(kind={"matmul", "attention"})} == {"bf16"}
    assert {line.number_format for line in ledger.where(kind={"normalization", "loss", "optimizer"})} == {"fp32"}


def test_latent_attention_falls_back_to_fp32_where_the_kernel_wants_equal_heads():
    latent = AttentionSpec(
        H, kind="latent", key_value_rank=16, rotary_head_size=4, plain_head_size=8, value_head_size=6
    )
    spec = ModelSpec("mla", V, 64, L, D, latent, MlpSpec(F))
    ledger = count(spec, Recipe(batch_size=B, sequence_length=T, precision="bf16"))
    assert {line.number_format for line in ledger.where(kind="attention")} == {"fp32"}
    attention = ledger.where(kind="attention", phase="forward")
    assert attention.flops == L * 2 * B * H * T * T * ((8 + 4) + 6)
    maps = D * H * 12 + D * (16 + 4) + 16 * H * (8 + 6) + H * 6 * D
    forward = ledger.where(phase="forward", kind="matmul")
    assert forward.flops == 2 * B * T * (L * (maps + 3 * D * F) + D * V)


def test_a_mixture_counts_the_experts_a_token_visits_and_says_how_it_routes():
    moe = MoeSpec(8, 3, 24, shared_intermediate_size=16, shared_gate=True, num_leading_dense_layers=1)
    spec = ModelSpec("moe", V, 64, L, D, AttentionSpec(H, K), MlpSpec(F), moe=moe)
    attention_maps = 2 * D * H * d + 2 * D * K * d
    mixture = D * 8 + 3 * 3 * D * 24 + 3 * D * 16 + D
    weights = L * attention_maps + 1 * 3 * D * F + (L - 1) * mixture + D * V
    ledger = count(spec, RECIPE)
    assert ledger.where(phase="forward", kind="matmul").flops == 2 * B * T * weights
    assert any("uniform top-k routing" in assumption for assumption in ledger.assumptions)


def test_token_copies_that_do_not_divide_are_spread_as_evenly_as_whole_ones_can():
    moe = MoeSpec(5, 2, 24)
    spec = ModelSpec("moe", V, 64, 1, D, AttentionSpec(H, K), MlpSpec(F), moe=moe)
    ups = count(spec, Recipe(batch_size=1, sequence_length=6)).where(
        module="layers.*.mlp.experts.*.up", phase="forward", kind="matmul"
    )
    assert sorted((line.times, dict(line.shape)["m"]) for line in ups) == [(2, 3), (3, 2)]


def test_a_tied_head_adds_its_gradient_to_the_embeddings():
    tied = ModelSpec("tied", V, 64, L, D, AttentionSpec(H, K), MlpSpec(F), tied_embeddings=True)
    assert count(tied, RECIPE).flops == count(LLAMA, RECIPE).flops
    added = count(tied, RECIPE).where(op="gradient_accumulation", module="embedding")
    assert added.total.flops_full == V * D
    assert len(count(LLAMA, RECIPE).where(op="gradient_accumulation", module="embedding")) == 0


def test_the_embedding_counts_as_a_matmul_where_the_convention_says_so():
    forward = count(LLAMA, RECIPE, convention=Convention(embedding=True)).where(phase="forward")
    assert forward.flops == FORWARD + 2 * B * T * V * D


def test_learned_positions_biases_and_layer_norm_are_counted_among_all_operations():
    bias = {"query_bias": True, "key_bias": True, "value_bias": True, "output_bias": True}
    gpt = ModelSpec(
        "gpt",
        V,
        64,
        1,
        D,
        AttentionSpec(H, **bias),
        MlpSpec(F, "plain", "gelu", up_bias=True, down_bias=True),
        NormSpec("layer", bias=True),
        PositionSpec("learned"),
    )
    forward = count(gpt, RECIPE).where(phase="forward")
    assert forward.where(op="bias_add").total.flops_full == B * T * (4 * D + F + D)
    assert forward.where(op="layer_norm").total.flops_full == 3 * B * T * (7 * D + 1)
    assert forward.where(op="gelu").total.flops_full == 4 * B * T * F
    # positions, and two residual additions
    assert forward.where(op="add", module="").total.flops_full == B * T * D
    assert forward.where(op="add", module="layers.*").total.flops_full == 2 * B * T * D


def test_every_line_of_every_preset_is_known_and_forward_lines_come_first():
    for name in ("llama-3-8b", "gemma-2-9b", "deepseek-v3", "bloom-560m", "opt-350m", "qwen1.5-moe-a2.7b"):
        ledger = count(get(name), Recipe(batch_size=2, sequence_length=64))
        assert ledger.is_complete
        assert ledger.unknown_lines == ()
        phases = [line.phase for line in ledger]
        assert phases == sorted(phases, key=["forward", "backward", "optimizer"].index)


def test_nothing_said_means_one_sequence_of_at_most_8192_tokens():
    assert default_recipe(get("llama-3-8b")) == Recipe(batch_size=1, sequence_length=8192)
    assert default_recipe(get("llama-3.1-405b")).sequence_length == 8192
    assert default_recipe(get("gpt2")).sequence_length == 1024
    assert count(get("gpt2")).flops == count(get("gpt2"), Recipe(batch_size=1, sequence_length=1024)).flops


@pytest.mark.parametrize("implementation", ["fused", "foreach", "loop"])
def test_the_optimizer_runs_once_a_step_whatever_the_micro_batches(implementation):
    recipe = Recipe(
        batch_size=4,
        sequence_length=T,
        accumulation_steps=4,
        optimizer=OptimizerSpec(implementation=implementation),
    )
    steps = count(LLAMA, recipe).where(op="adamw")
    assert sum(line.total.flops_full for line in steps) == 11 * (LINEARS + V * D) + 10 * (2 * L + 1) * D


def test_kept_bytes_of_micro_batches_are_told_to_be_a_sum():
    """Four micro-batches keep four times what one does, one after the other: the ledger sums, the peak has one."""
    quarter = Recipe(batch_size=1, sequence_length=T)
    whole = Recipe(batch_size=4, sequence_length=T, accumulation_steps=4)
    kept = {recipe.batch_size: count(LLAMA, recipe).total.bytes_kept for recipe in (quarter, whole)}
    one = kept[1] + 8  # the loss of a micro-batch is divided by their number, which is kept as an FP64
    assert kept[4] == 4 * one
    assert (memory(LLAMA, quarter).activation_bytes, memory(LLAMA, whole).activation_bytes) == (kept[1], one)
    told = [recipe for recipe in (quarter, whole) if any("micro-batch" in a for a in count(LLAMA, recipe).assumptions)]
    assert told == [whole]
