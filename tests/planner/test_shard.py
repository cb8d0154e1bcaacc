"""The model and the recipe as one rank sees them."""

from __future__ import annotations

import pytest

from torchledger.planner.shard import micro_batch_size, num_micro_batches, sharded_recipe, sharded_spec
from torchledger.planner.stack import stack
from torchledger.spec import Recipe, Strategy, presets


def test_heads_inner_width_and_vocabulary_are_divided_and_the_stream_is_not() -> None:
    spec = presets.get("llama-3-8b")
    part = sharded_spec(spec, Strategy(tensor_parallel=4), stack("torchledger"))
    assert (part.attention.num_heads, part.num_key_value_heads, part.head_size) == (32 // 4, 8 // 4, 128)
    assert (part.mlp.intermediate_size, part.hidden_size, part.vocab_size) == (14336 // 4, 4096, 128256 // 4)


def test_more_ranks_than_key_value_heads_repeat_them() -> None:
    part = sharded_spec(presets.get("llama-3-8b"), Strategy(tensor_parallel=16), stack("torchledger"))
    assert part.num_key_value_heads == 1


def test_experts_are_spread_and_every_token_still_visits_as_many() -> None:
    spec = presets.get("mixtral-8x7b")
    part = sharded_spec(spec, Strategy(expert_parallel=8, data_parallel=8), stack("torchledger"))
    assert part.moe is not None
    assert spec.moe is not None
    assert (part.moe.num_experts, part.moe.experts_per_token) == (1, spec.moe.experts_per_token)


def test_a_stack_pads_the_vocabulary() -> None:
    """Megatron-LM pads GPT-2's 50,257 rows to a multiple of 128 · 8."""
    part = sharded_spec(presets.get("gpt2"), Strategy(tensor_parallel=8), stack("megatron"))
    assert part.vocab_size == 51200 // 8


@pytest.mark.parametrize(("micro", "size", "count"), [(0, 4, 1), (1, 1, 4), (2, 2, 2)])
def test_a_replicas_share_is_cut_into_micro_batches(micro: int, size: int, count: int) -> None:
    recipe, strategy = Recipe(batch_size=32), Strategy(data_parallel=8, micro_batch_size=micro)
    assert (micro_batch_size(recipe, strategy), num_micro_batches(recipe, strategy)) == (size, count)


def test_one_rank_has_its_share_of_a_sequence() -> None:
    recipe = sharded_recipe(Recipe(batch_size=8, sequence_length=8192), Strategy(data_parallel=2, context_parallel=4))
    assert (recipe.batch_size, recipe.sequence_length, recipe.accumulation_steps) == (4, 2048, 1)
