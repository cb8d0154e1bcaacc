"""Bytes that the planner counts for a rank of a shared model, against a rank of the trainer's own step on no memory."""

import itertools
from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, Strategy
from torchledger.tracer import trace_step
from torchledger.trainer.layout import local_recipe
from torchledger.trainer.step import build_step, example_batch

#: A model of which embedding and head are most, so that where they are gathered shows.
PLAIN = ModelSpec("plain", 32000, 256, 4, 512, AttentionSpec(8), MlpSpec(1024))
FURTHER = replace(PLAIN, num_prediction_layers=2)
SHAPES = {
    "plain": PLAIN,
    "tied": replace(PLAIN, tied_embeddings=True),
    "further": FURTHER,
    "tied further": replace(FURTHER, tied_embeddings=True),
}
RANKS = 4


def traced_bytes(spec, recipe, strategy):
    """Bytes of all tensors at the peak of a step of the first rank, cuBLAS's workspace left out."""
    mine = local_recipe(recipe, strategy)

    def build():
        step, numbers = build_step(spec, mine, initialized=False, strategy=strategy), itertools.count()
        batch = example_batch(mine)
        return lambda: step(batch, next(numbers))

    peak = trace_step(build, world_size=RANKS, rank=0, target="cuda").peak()
    return peak.peak_bytes - peak.by_part().get("workspace", 0)


def planned_bytes(spec, recipe, strategy):
    """The same of the plan: what tensors hold."""
    estimator = Estimator(spec, recipe, parse_cluster(f"h100x{RANKS}"))
    memory = estimator.memory(strategy, estimator.held(strategy)[0])
    return memory.allocated_bytes - memory.parts["workspace"]


@pytest.mark.parametrize("length", [64, pytest.param(256, marks=pytest.mark.proof)])
@pytest.mark.parametrize("reshard", [True, pytest.param(False, marks=pytest.mark.proof)])
@pytest.mark.parametrize(
    "name", ["further", "tied", *(pytest.param(each, marks=pytest.mark.proof) for each in ("plain", "tied further"))]
)
def test_ends_that_are_gathered_together_are_counted_together(name, reshard, length):
    """Within 18 % of the trace and at most 1 % below: ends in FSDP's root stay for both passes, their gradients add up.

    It is above by what it does not tell apart: gradients of this step's shards, which begin to be there only now.
    """
    recipe = Recipe(batch_size=4, sequence_length=length, num_tokens=10**6, precision="bf16")
    strategy = Strategy(data_parallel=RANKS, shard_level=3, micro_batch_size=1, reshard=reshard)
    spec = SHAPES[name]
    assert 0.99 < planned_bytes(spec, recipe, strategy) / traced_bytes(spec, recipe, strategy) < 1.18
