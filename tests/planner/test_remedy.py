import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.remedy import remedies
from torchledger.planner.rules import refusals
from torchledger.spec import Recipe, Strategy, presets

EIGHT = parse_cluster("h100x8")
LLAMA = presets.get("llama-3-8b")
RECIPE = Recipe(batch_size=64, sequence_length=2048, precision="bf16")
REPLICAS = Strategy("megatron", data_parallel=8, micro_batch_size=1)


def test_every_remedy_fits_and_can_be():
    """A change is offered only if no rule is broken and the fullest rank has room."""
    found = remedies(LLAMA, RECIPE, REPLICAS, EIGHT)
    assert found
    for each in found:
        assert refusals(LLAMA, each.recipe, each.strategy, each.cluster) == ()
        estimator = Estimator(LLAMA, each.recipe, each.cluster)
        assert estimator.estimate(each.strategy) == each.estimate
        assert each.estimate.peak_bytes <= estimator.capacity_bytes


def test_the_fastest_comes_first():
    """On the chips that there are, in order of time."""
    seconds = [e.estimate.step_s for e in remedies(LLAMA, RECIPE, REPLICAS, EIGHT) if e.cluster.num_chips == 8]
    assert seconds == sorted(seconds)


def test_sharding_the_optimizer_is_among_them():
    """Eight replicas of 8B parameters with all their state do not fit; dividing it over them does (ZeRO 1)."""
    assert "ZeRO 1" in [each.what for each in remedies(LLAMA, RECIPE, REPLICAS, EIGHT)]


def test_two_changes_where_one_is_not_enough():
    """On two GPUs of 80 GB no single change makes room for 70 billion parameters on 64; with full recompute some do."""
    giant, chips = presets.get("llama-3-70b"), parse_cluster("h100x64")
    recipe = Recipe(batch_size=64, sequence_length=8192, precision="bf16")
    strategy = Strategy("megatron", data_parallel=8, tensor_parallel=8, shard_level=1, micro_batch_size=8)
    found = remedies(giant, recipe, strategy, chips)
    assert found
    assert all(each.what.startswith("recompute full, ") for each in found)
    assert all(each.recipe.recompute == "full" for each in found)


@pytest.mark.parametrize("level", [0, 1])
def test_what_is_done_already_is_no_remedy(level):
    """A layout that shards the optimizer's state is not told to."""
    strategy = Strategy("megatron", data_parallel=8, shard_level=level, micro_batch_size=1)
    told = [each.what for each in remedies(LLAMA, RECIPE, strategy, EIGHT)]
    assert ("ZeRO 1" in told) == (level == 0)


def test_nothing_helps_where_one_chip_holds_a_giant():
    """405 billion parameters on one GPU: no small change makes room."""
    giant = presets.get("llama-3.1-405b")
    assert (
        remedies(giant, Recipe(batch_size=1, sequence_length=8192), Strategy("megatron"), parse_cluster("h100")) == ()
    )
