"""The parts of a model add up to the whole."""

from collections import Counter
from dataclasses import replace

import pytest

from torchledger.formula import count, memory, parameters, parts
from torchledger.formula.optimizer import optimizer_lines
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec, Recipe, presets

SPECS = (
    ModelSpec("llama", 100, 64, 3, 32, AttentionSpec(4, 2), MlpSpec(80)),
    ModelSpec("tied", 100, 64, 2, 32, AttentionSpec(4, 2), MlpSpec(80), tied_embeddings=True),
    ModelSpec(
        "opt", 100, 64, 3, 32, AttentionSpec(4), MlpSpec(80, "plain", "relu"),
        norm=NormSpec("layer", bias=True, placement="residual"), position=PositionSpec("none"), embedding_size=16,
    ),
    ModelSpec(
        "gemma", 100, 64, 5, 32, AttentionSpec(4, 2, window_pattern=(8, 8, 0), logit_soft_cap=5.0), MlpSpec(80),
        tied_embeddings=True, embedding_scale=True, final_logit_soft_cap=3.0,
    ),
    ModelSpec("alibi", 100, 64, 3, 32, AttentionSpec(4, dropout=0.1), MlpSpec(80), position=PositionSpec("alibi")),
    ModelSpec(
        "mixture", 100, 64, 4, 32, AttentionSpec(4, 2), MlpSpec(80),
        moe=MoeSpec(5, 2, 24, 32, num_leading_dense_layers=1),
    ),
)  # fmt: skip
RECIPES = (
    Recipe(batch_size=2, sequence_length=16),
    Recipe(batch_size=2, sequence_length=16, precision="bf16", attention="math", recompute="full"),
    Recipe(batch_size=6, sequence_length=16, precision="bf16", accumulation_steps=3),
)
BY_SPEC = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
BY_RECIPE = pytest.mark.parametrize("recipe", RECIPES, ids=["plain", "recompute", "accumulation"])


def _work(lines):
    found = Counter()
    for line in lines:
        for name, amount in zip(
            ("full", "exact", "executed", "special", "read", "written", "kept"), line.total.amounts(), strict=False
        ):
            found[*line.account, name] += amount
    return +found


def _whole(spec, recipe):
    steps = recipe.accumulation_steps
    for part in parts(spec, recipe):
        yield from (line.repeated(part.times * steps) for line in part.lines)
        yield from (line.repeated(part.times * (steps - 1)) for line in part.accumulation)
    yield from optimizer_lines(parameters(spec, recipe), recipe.optimizer)


@BY_SPEC
@BY_RECIPE
def test_the_parts_with_their_numbers_are_the_whole_step(spec, recipe):
    """Each part as often as the model has it, for every micro-batch, and the optimizer: all that `count` counts."""
    assert _work(_whole(spec, recipe)) == _work(count(spec, recipe))


@BY_SPEC
@BY_RECIPE
def test_what_the_parts_keep_is_what_the_whole_keeps(spec, recipe):
    kept = sum(part.kept_bytes * part.times for part in parts(spec, recipe))
    assert kept == memory(spec, recipe).activation_bytes


@BY_SPEC
def test_every_parameter_is_in_one_part(spec):
    inside = sum(each.total * part.times for part in parts(spec, RECIPES[0]) for each in part.parameters)
    assert inside == sum(each.total for each in parameters(spec))


def test_parts_are_named_by_what_tells_them_apart():
    gemma = parts(SPECS[3], RECIPES[0])
    assert [(part.name, part.kind, part.times) for part in gemma] == [
        ("embedding", "embedding", 1),
        ("layer window 8", "layer", 4),
        ("layer", "layer", 1),
        ("head", "head", 1),
    ]
    assert [part.name for part in parts(SPECS[5], RECIPES[0])] == ["embedding", "layer", "mixture layer", "head"]
    assert [part.layer.first for part in gemma if part.layer] == [0, 2]
    opt = parts(SPECS[2], RECIPES[2])
    assert [(part.name, part.times) for part in opt[1:-1]] == [("layer", 1), ("layer from 1", 2)]


def test_a_share_of_a_model_has_parts_too():
    """Half the heads, a quarter of the experts: no size is taken for another."""
    share = ModelSpec("share", 50, 64, 2, 32, AttentionSpec(2, 1, head_size=8), MlpSpec(40), moe=MoeSpec(1, 2, 24))
    layer = parts(share, RECIPES[0])[1]
    query = next(line for line in layer.lines if line.module == "layers.*.attention.query")
    assert query.work.flops_full == 2 * 2 * 16 * 32 * 2 * 8


def test_a_published_model_is_in_its_parts():
    spec = presets.get("llama-3-8b")
    assert [(part.name, part.times) for part in parts(spec, Recipe())] == [("embedding", 1), ("layer", 32), ("head", 1)]


PREDICTING = ModelSpec(
    "predicting", 100, 64, 3, 32, AttentionSpec(4, 2), MlpSpec(80), moe=MoeSpec(5, 2, 24, 32), num_prediction_layers=2
)


@pytest.mark.parametrize("kernels", ["cpu", "flash", "megatron-flash"])
@BY_RECIPE
def test_a_model_that_predicts_further_adds_up_too(recipe, kernels):
    """Each prediction layer is a layer, a map [2·D, D], and the head and the loss once more."""
    found = parts(PREDICTING, recipe, kernels=kernels)
    assert [(part.kind, part.times) for part in found[2:]] == [("prediction", 2), ("head", 1)]
    counted = count(PREDICTING, recipe, kernels=kernels)
    whole = sum(line.total.flops_full for line in counted.lines if line.phase != "optimizer")
    steps = recipe.accumulation_steps
    lines = sum(line.total.flops_full * part.times * steps for part in found for line in part.lines)
    added = sum(line.total.flops_full * part.times * (steps - 1) for part in found for line in part.accumulation)
    assert lines + added == whole
    kept = sum(part.kept_bytes * part.times for part in found)
    assert kept == memory(PREDICTING, recipe, kernels=kernels).activation_bytes


def test_a_prediction_layer_costs_a_layer_a_map_and_a_head():
    tokens, D = 2 * 16, 32
    _, layer, prediction, head = parts(PREDICTING, RECIPES[0])

    def matmuls(part):
        return sum(line.total.flops_full for line in part.lines if (line.kind, line.phase) == ("matmul", "forward"))

    assert matmuls(prediction) == matmuls(layer) + matmuls(head) + 2 * tokens * 2 * D * D


@pytest.mark.parametrize(("kernels", "bytes_of_a_mask"), [("cpu", 4), ("cuda", 1), ("megatron", 1)])
def test_dropout_of_the_stream_keeps_three_masks(kernels, bytes_of_a_mask):
    """One for the embedding and two a layer: on the CPU in the format of the stream, on CUDA boolean."""
    plain = SPECS[0]
    dropped = replace(plain, dropout=0.1)
    recipe = Recipe(batch_size=2, sequence_length=16)

    def kept(spec):
        return [part.kept_bytes for part in parts(spec, recipe, kernels=kernels)]

    masks = [more - less for more, less in zip(kept(dropped), kept(plain), strict=True)]
    one = bytes_of_a_mask * 2 * 16 * 32
    assert masks == [one, 2 * one, 0]


def test_capacity_decides_the_rows_of_an_expert():
    """5 experts, 2 of them for each of 32 tokens: an even share of 12.8 copies, with capacity 1.5 20 rows each."""
    spec = replace(SPECS[5], moe=replace(SPECS[5].moe, capacity_factor=1.5))
    mixture = parts(spec, RECIPES[0])[2]
    ups = [line for line in mixture.lines if line.module == "layers.*.mlp.experts.*.up" and line.phase == "forward"]
    assert [(dict(line.shape)["m"], line.times) for line in ups] == [(20, 5)]


def test_experts_of_a_gpu_are_one_grouped_matmul():
    """5 experts in one line of 5 products instead of 5 times one."""
    mixture = parts(SPECS[5], RECIPES[0], kernels="flash")[2]
    shapes = [
        (dict(line.shape)["b"], line.times)
        for line in mixture.lines
        if line.module == "layers.*.mlp.experts.*.up" and line.phase == "forward"
    ]
    assert shapes == [(4, 1), (1, 1)]  # 64 copies: four experts with 13, one with 12
