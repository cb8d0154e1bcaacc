import pytest

from torchledger.cli.plan_fill import fill
from torchledger.machine import parse_cluster
from torchledger.spec import Recipe, Strategy

H100S = parse_cluster("h100x64")


def filled(*given, recipe=None, strategy=None, searches=False):
    recipe = recipe or Recipe(sequence_length=8192, precision="bf16")
    return fill(recipe, strategy or Strategy(), H100S, frozenset(given), searches=searches)


def test_everything_that_is_filled_in_is_told():
    """Stack, precision, length, batch and micro-batch: five lines, each with the flag that says otherwise."""
    told = filled().assumptions
    assert len(told) == 5
    assert all("says otherwise" in line for line in told)


def test_nothing_is_told_of_what_is_given():
    """Who said everything hears nothing."""
    given = (
        "strategy.stack",
        "strategy.micro_batch_size",
        "recipe.precision",
        "recipe.sequence_length",
        "recipe.batch_size",
    )
    assert filled(*given).assumptions == ()


@pytest.mark.parametrize(
    ("strategy", "stack"),
    [
        (Strategy(tensor_parallel=8), "megatron"),
        (Strategy(shard_level=3), "fsdp2"),
        (Strategy(shard_level=1), "megatron"),
    ],
)
def test_the_stack_follows_the_layout(strategy, stack):
    """Sharded parameters are FSDP's; everything else Megatron-Core has."""
    assert filled(strategy=strategy).strategy.stack == stack


def test_data_parallel_ranks_use_all_chips():
    """64 chips over tp 8 and pp 2 leave 4 replicas."""
    assert filled(strategy=Strategy(tensor_parallel=8, pipeline_parallel=2)).strategy.data_parallel == 64 // (8 * 2)


def test_the_batch_is_near_4m_tokens_and_equal_for_every_replica():
    """2^22 tokens of 8,192 are 512 sequences: a multiple of 64 replicas as it is, of 24 ranks after rounding."""
    assert filled().recipe.batch_size == 2**22 // 8192
    chips = parse_cluster("h100x24")
    odd = fill(Recipe(sequence_length=8192), Strategy(), chips, frozenset(), searches=False)
    assert odd.recipe.batch_size == round(512 / 24) * 24


def test_a_search_leaves_ranks_and_micro_batch_open():
    """What the search decides is not filled in."""
    found = filled(searches=True)
    assert (found.strategy.data_parallel, found.strategy.micro_batch_size) == (1, 0)


def test_chunks_mean_the_interleaved_schedule():
    """`--vp 2` alone asks for interleaving."""
    assert filled("strategy.virtual_stages", strategy=Strategy(virtual_stages=2)).strategy.schedule == "interleaved"


def test_what_overlaps_is_the_stacks_unless_it_is_given():
    """Megatron-LM of 2021 reduces gradients after the last backward pass; Megatron-Core's recipes beside it."""
    old = Strategy(stack="megatron-2021", tensor_parallel=8)
    found = filled("strategy.stack", strategy=old)
    assert not found.strategy.overlap_data
    assert any("after the last backward pass, as megatron-2021 does" in each for each in found.assumptions)
    assert filled("strategy.stack", "strategy.overlap_data", strategy=old).strategy.overlap_data
    assert filled(strategy=Strategy(tensor_parallel=8)).strategy.overlap_data
