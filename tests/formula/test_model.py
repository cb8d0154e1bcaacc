"""The whole model walked: the order of its parts, and what layers of one kind share."""

from dataclasses import replace

import pytest

from torchledger.formula.model import layer_kinds, needs_mask, walk
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec, Recipe

SPEC = ModelSpec("s", 50, 64, 6, 32, AttentionSpec(4, 2), MlpSpec(16))
RECIPE = Recipe(batch_size=2, sequence_length=8)


def _forward(spec, recipe=RECIPE):
    return [line for line in walk(spec, recipe).lines() if line.phase == "forward"]


def _norms(spec):
    return [line.module for line in _forward(spec) if line.kind == "normalization"]


@pytest.mark.parametrize(
    ("placement", "norms"),
    [
        ("pre", ["attention_norm", "mlp_norm"]),
        ("post", ["attention_post_norm", "mlp_post_norm"]),
        ("sandwich", ["attention_norm", "attention_post_norm", "mlp_norm", "mlp_post_norm"]),
        ("residual", ["attention_post_norm", "mlp_post_norm"]),
    ],
)
def test_norms_stand_where_their_placement_says(placement, norms):
    spec = replace(SPEC, norm=NormSpec(placement=placement))
    assert _norms(spec) == [*(f"layers.*.{name}" for name in norms), "final_norm"]


def test_parallel_branches_may_share_one_norm():
    assert _norms(replace(SPEC, parallel=True))[:2] == ["layers.*.attention_norm", "layers.*.mlp_norm"]
    shared = replace(SPEC, parallel=True, norm=NormSpec(shared=True, final=False))
    assert _norms(shared) == ["layers.*.attention_norm"]


def test_layers_of_one_kind_are_walked_once_wherever_they_stand():
    spec = replace(
        SPEC, attention=AttentionSpec(4, 2, window_pattern=(4, 0)), moe=MoeSpec(4, 2, 8, num_leading_dense_layers=2)
    )
    assert layer_kinds(spec) == {(4, False): 1, (0, False): 1, (4, True): 2, (0, True): 2}
    assert layer_kinds(SPEC) == {(0, False): 6}


@pytest.mark.parametrize(
    ("change", "kernel", "window", "needs"),
    [
        ({}, "fused", 0, False),
        ({}, "math", 0, True),
        ({}, "fused", 4, True),
        ({"position": PositionSpec("alibi")}, "fused", 0, True),
        ({"attention": AttentionSpec(4, logit_soft_cap=50.0)}, "fused", 0, True),
    ],
)
def test_the_fused_kernel_knows_causality_and_everything_else_needs_a_mask(change, kernel, window, needs):
    assert needs_mask(replace(SPEC, **change), replace(RECIPE, attention=kernel), window) is needs


def test_a_mask_is_made_once_for_all_layers_with_its_window():
    spec = replace(SPEC, attention=AttentionSpec(4, 2, window_pattern=(4, 0)))
    masks = [each for each in walk(spec, RECIPE).activations() if each.name.startswith("mask")]
    assert [(each.name, each.total_bytes) for each in masks] == [("mask of window 4", 4 * 8 * 8)]


def test_alibi_has_a_mask_a_head():
    (mask,) = [
        each
        for each in walk(replace(SPEC, position=PositionSpec("alibi")), RECIPE).activations()
        if each.name.startswith("mask")
    ]
    assert mask.shape == (4, 8, 8)


def test_an_embedding_of_another_width_is_projected_in_and_out():
    modules = [line.module for line in _forward(replace(SPEC, embedding_size=12)) if line.kind == "matmul"]
    assert modules[0] == "embedding_projection"
    assert modules[-2:] == ["embedding_projection_out", "head"]


def test_the_loss_keeps_log_probabilities_and_two_numbers():
    kept = {each.name: each.num_bytes for each in walk(SPEC, RECIPE).activations()}
    assert kept["log-probabilities"] == 4 * 2 * 8 * 50
    assert (kept["number of targets"], kept["loss"]) == (4, 4)
    assert {line.module for line in _forward(SPEC) if line.kind == "loss"} == {""}


def test_capped_logits_keep_their_tanh():
    kept = {each.name for each in walk(replace(SPEC, final_logit_soft_cap=30.0), RECIPE).activations()}
    assert "logits tanh" in kept


def test_a_scaled_embedding_keeps_the_number_and_positions_their_indices():
    spec = replace(SPEC, embedding_scale=True, position=PositionSpec("learned"))
    kept = {each.name: each.num_bytes for each in walk(spec, RECIPE).activations()}
    assert (kept["scaled embedding: number"], kept["positions"]) == (8, 8 * 8)


def test_all_kept_bytes_stand_on_a_line():
    for recompute in ("none", "full"):
        for steps in (1, 2):
            tape = walk(SPEC, replace(RECIPE, recompute=recompute, accumulation_steps=steps))
            lines = sum(line.total.bytes_kept for line in tape.lines())
            assert lines == sum(each.total_bytes for each in tape.activations())
