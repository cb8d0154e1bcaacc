"""Which layouts these ranks can run, and what one of them runs."""

from contextlib import nullcontext
from dataclasses import replace

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.rules import refusals
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, Recipe, SpecError, Strategy
from torchledger.trainer.layout import local_recipe, require_layout, strategy_for
from torchledger.trainer.ranks import Ranks

TINY = ModelSpec("tiny", 257, 32, 2, 32, AttentionSpec(4), MlpSpec(48))
RECIPE = Recipe(batch_size=8, sequence_length=16)
TENSOR = Strategy(tensor_parallel=2)


@pytest.mark.parametrize(
    ("strategy", "changes", "said"),
    [
        (Strategy(data_parallel=4), {}, "is for 4 ranks, and 2 run"),
        (Strategy(data_parallel=2), {"batch_size": 3}, "cannot share a batch of 3"),
        (Strategy(data_parallel=2), {"accumulation_steps": 8}, "8 does not divide the 4 sequences"),
        (Strategy(data_parallel=2, micro_batch_size=3), {}, "3 does not divide the 4 sequences"),
        (Strategy(data_parallel=2, shard_group=2), {}, "needs shard_level 3"),
        (Strategy(data_parallel=2, shard_level=2), {}, "use 0 (replicas) or 3 (shards)"),
        (Strategy(pipeline_parallel=2), {}, "pipeline_parallel"),
        (Strategy(context_parallel=2), {}, "context_parallel"),
        (Strategy(data_parallel=2, stack="megatron"), {}, "is another trainer"),
        (replace(TENSOR, vocab_parallel=False), {}, "whole embedding"),
        (replace(TENSOR, sequence_parallel=True), {"sequence_length": 15}, "the 15 tokens"),
    ],
)
def test_what_cannot_be_is_refused_by_name(strategy, changes, said):
    """Each reason names the field and what to do."""
    with pytest.raises(SpecError) as refused:
        require_layout(TINY, replace(RECIPE, **changes), strategy, Ranks(0, 2))
    assert said in str(refused.value)


def test_sizes_that_tensor_parallel_ranks_cannot_share_are_refused():
    """Heads, columns of experts and of those that every token visits: several mistakes are told at once."""
    spec = replace(TINY, moe=MoeSpec(4, 2, 15, shared_intermediate_size=9), attention=AttentionSpec(3, head_size=8))
    with pytest.raises(SpecError) as refused:
        require_layout(spec, RECIPE, TENSOR, Ranks(0, 2))
    for said in ("3 attention heads", "15 columns of an expert", "9 columns of the shared expert"):
        assert said in str(refused.value)
    assert "columns of the MLP" not in str(refused.value)  # there is none


@pytest.mark.parametrize(("ranks", "is_refused"), [(2, False), (3, True), (4, False), (6, True), (8, False)])
def test_the_planner_and_the_trainer_say_the_same_of_key_value_heads(ranks, is_refused):
    """24 heads on 4 of keys and values: 8 ranks hold each of those twice; 3 and 6 could not hold whole ones."""
    spec = replace(TINY, attention=AttentionSpec(24, 4, head_size=8))
    layout, asked = Strategy(tensor_parallel=ranks), replace(RECIPE, sequence_length=24)
    reasons = [each.reason for each in refusals(spec, asked, layout, parse_cluster(f"h100x{ranks}"))]
    said = f"{ranks} neither divides 4 key-value heads nor is a multiple of them"
    assert reasons == ([f"tensor_parallel {said}"] if is_refused else [])
    with pytest.raises(SpecError, match=f"{said}; it can be 2, 4, 8, 12, 24") if is_refused else nullcontext():
        require_layout(spec, asked, layout, Ranks(0, ranks))


def test_shares_add_up_to_the_batch():
    """Ranks' rows are the batch's, micro-batches as many as asked, steps as many as the run's."""
    asked = replace(RECIPE, accumulation_steps=2, num_tokens=5 * 8 * 16)
    mine = local_recipe(asked, Strategy(data_parallel=2))
    assert (2 * mine.batch_size, mine.accumulation_steps, mine.num_steps) == (8, 2, asked.num_steps)
    assert local_recipe(asked, Strategy(data_parallel=2, micro_batch_size=1)).accumulation_steps == 4
    assert local_recipe(asked, Strategy(tensor_parallel=2)) == asked


def test_ranks_that_nobody_lays_out_are_replicas():
    """A strategy of one rank takes all that run; another one is taken as it is."""
    assert strategy_for(Strategy(), Ranks(1, 3)).data_parallel == 3
    assert strategy_for(TENSOR, Ranks(1, 2)) == TENSOR
