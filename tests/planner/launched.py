"""Layouts to say to stacks: drawn over what they know and sometimes do not."""

import random
from dataclasses import replace

from torchledger.machine import parse_cluster
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, OptimizerSpec, Recipe, Strategy

CLUSTER = parse_cluster("h100x64")
DENSE = ModelSpec("dense", 1024, 8192, 24, 512, AttentionSpec(16, num_key_value_heads=8), MlpSpec(1536))
MIXTURE = replace(DENSE, name="mixture", moe=MoeSpec(8, 2, 256))


def drawn(seed):
    """A model, a recipe and a layout that use what the stacks know, and sometimes what they do not."""
    draw = random.Random(seed)
    spec = draw.choice((DENSE, DENSE, MIXTURE))
    tp, cp, pp, dp = (draw.choice(choices) for choices in ((1, 2, 4), (1, 1, 2), (1, 2, 4), (1, 2, 4)))
    schedule = draw.choice(("1f1b", "1f1b", "interleaved", "gpipe", "zero-bubble")) if pp > 1 else "1f1b"
    size = draw.choice((1, 2))
    level = draw.choice((0, 1, 2, 3, 3))
    strategy = Strategy(
        stack="megatron",
        data_parallel=dp,
        shard_level=level,
        shard_group=draw.choice((0, 2)) if dp == 4 and level else 0,
        reshard=draw.random() < 0.7,
        tensor_parallel=tp,
        sequence_parallel=tp > 1 and draw.random() < 0.6,
        pipeline_parallel=pp,
        schedule=schedule,
        virtual_stages=draw.choice((2, 3)) if schedule == "interleaved" else 1,
        context_parallel=cp,
        context_kind=draw.choice(("ring", "all-gather", "ulysses")) if cp > 1 else "ring",
        expert_parallel=draw.choice((1, 2)) if spec.moe and dp > 1 else 1,
        expert_tensor_parallel=1 if spec.moe and tp > 1 and draw.random() < 0.5 else 0,
        micro_batch_size=size,
        overlap_data=draw.random() < 0.8,
        overlap_tensor=tp > 1 and draw.random() < 0.2,
    )
    recipe = Recipe(
        batch_size=dp * size * 8,
        sequence_length=2048,
        precision=draw.choice(("fp32", "bf16", "bf16-master", "fp8")),
        recompute=draw.choice(("none", "selective", "full")),
        optimizer=OptimizerSpec(kind=draw.choice(("adamw", "adamw", "lion"))),
    )
    return spec, recipe, strategy


def after(words, program):
    """The words behind the program."""
    return list(words)[list(words).index(program) + 1 :]


def comparable(strategy):
    """Without what no flag of either stack says and nothing depends on."""
    level = strategy.shard_level
    return replace(strategy, reshard=strategy.reshard if level == 3 else True)
