from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.remedy import largest_micro_batch, remedies
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


def test_an_optimizer_of_fewer_bytes_is_among_them():
    """8-bit moments take 6 of AdamW's 8 bytes a parameter away; no master copy 4, and 2 of FP32 gradients."""
    one = parse_cluster("h200")
    strategy = Strategy("megatron", micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="bf16")
    before = Estimator(LLAMA, recipe, one).estimate(strategy).peak_bytes
    found = {each.what: each for each in remedies(LLAMA, recipe, strategy, one)}
    for what, saved in (("AdamW with 8-bit moments", 8 - 2.00390625), ("no FP32 master copy", 4 + 2)):
        left = found[what].estimate.peak_bytes
        assert before - left == pytest.approx(saved * 8.03e9, rel=0.01)


def test_the_largest_micro_batch_is_the_last_that_fits():
    """One divisor of a replica's share fits and the next does not; where nothing fits it is none."""
    strategy = Strategy("megatron", data_parallel=8, shard_level=1, micro_batch_size=1)
    estimator = Estimator(LLAMA, RECIPE, EIGHT)
    size = largest_micro_batch(estimator, strategy)
    assert size in {1, 2, 4}
    peaks = [estimator.estimate(replace(strategy, micro_batch_size=each)).peak_bytes for each in (size, 2 * size)]
    assert peaks[0] <= estimator.capacity_bytes < peaks[1]
    assert largest_micro_batch(Estimator(LLAMA, RECIPE, EIGHT), REPLICAS) == 0


def test_the_host_is_a_slow_place_for_an_optimizer():
    """On one H200 8-bit moments make room and go before the host: 28 bytes a parameter at an eighth of two sockets."""
    one, strategy = parse_cluster("h200"), Strategy("megatron", micro_batch_size=1)
    recipe = Recipe(batch_size=8, sequence_length=2048, precision="bf16")
    told = {each.what: each.estimate.step_s for each in remedies(LLAMA, recipe, strategy, one)}
    there, here = told["optimizer in host memory"], told["AdamW with 8-bit moments"]
    assert there - here > 8.03e9 * 28 / (2 * 307.2e9 / 8)
    assert list(told).index("optimizer in host memory") > list(told).index("AdamW with 8-bit moments")
