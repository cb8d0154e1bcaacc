"""Layouts drawn over everything that a layout says, of small models, that no rule refuses."""

import random
from typing import NamedTuple

import pytest

from torchledger.machine import Cluster, parse_cluster
from torchledger.planner.rules import refusals
from torchledger.planner.stack import stacks
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, Strategy

SPECS = (
    ModelSpec("dense", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(1024)),
    ModelSpec(
        "grouped", 1000, 512, 8, 256, AttentionSpec(8, num_key_value_heads=4), MlpSpec(768), tied_embeddings=True
    ),
    ModelSpec("windows", 1024, 512, 8, 256, AttentionSpec(8, window_pattern=(64, 0)), MlpSpec(1024)),
    ModelSpec("mixture", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(512), moe=MoeSpec(8, 2, 128)),
)


class Layout(NamedTuple):
    """A question to the planner."""

    spec: ModelSpec
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster


def drawn_layouts(count, seed):
    """So many layouts of every stack that no rule of it refuses."""
    draw = random.Random(seed)
    found = []
    for own in stacks().values():
        mine = []
        while len(mine) < count:
            layout = drawn_layout(draw, own)
            if not refusals(*layout):
                mine.append(layout)
        found += mine
    draw.shuffle(found)
    return tuple(found)


def drawn_layout(draw, own):
    """One of a stack, which its rules may refuse."""
    spec = draw.choice(SPECS)
    data, tensor, context = (draw.choice((1, 2, 4)) for _ in range(3))
    schedule = draw.choice(("none", "none", "gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"))
    stages = 1 if schedule == "none" else draw.choice((2, 4))
    strategy = Strategy(
        stack=own.name,
        data_parallel=data,
        shard_level=draw.choice(own.shard_levels),
        shard_group=draw.choice((0, 0, 2)),
        reshard=draw.random() < 0.5,
        tensor_parallel=tensor,
        sequence_parallel=tensor > 1 and draw.random() < 0.5,
        pipeline_parallel=stages,
        schedule="1f1b" if schedule == "none" else schedule,
        virtual_stages=2 if schedule == "interleaved" else 1,
        context_parallel=context,
        context_kind=draw.choice(("ring", "all-gather", "ulysses")),
        expert_parallel=draw.choice((1, 2, 4)) if spec.moe else 1,
        micro_batch_size=draw.choice((1, 2)),
        overlap_data=draw.random() < 0.5,
        overlap_tensor=draw.random() < 0.5,
    )
    recipe = Recipe(
        batch_size=data * draw.choice((8, 16, 32)),
        sequence_length=512,
        precision=draw.choice(("bf16", "bf16-master", "fp8")),
        recompute=draw.choice(("none", "selective", "full")),
        lora_rank=draw.choice((0, 0, 0, 8)),
    )
    return Layout(spec, recipe, strategy, parse_cluster(f"h100x{strategy.num_ranks}"))


@pytest.fixture(scope="session")
def layouts():
    """Eight layouts of every stack: every schedule, shard level, kind of context parallelism and recompute."""
    found = drawn_layouts(8, seed=4)
    assert {each.strategy.schedule for each in found} == {"gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe"}
    assert {each.strategy.shard_level for each in found} == {0, 1, 2, 3}
    assert {each.recipe.recompute for each in found} == {"none", "selective", "full"}
    assert any(each.recipe.lora_rank for each in found)
    assert any(each.strategy.expert_parallel > 1 for each in found)
    assert any(each.strategy.context_parallel > 1 and each.spec.name == "windows" for each in found)
    return found
