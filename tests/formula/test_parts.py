"""The parts of a model add up to the whole."""

from collections import Counter

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
