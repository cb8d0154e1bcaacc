"""Key-value heads over tensor parallel ranks, as a rank of the trainer holds them (tests/agree/test_ranks.py)."""

from dataclasses import replace

import pytest

from torchledger.formula import parameters
from torchledger.planner.key_value_heads import cutters_of, num_copies
from torchledger.planner.shard import sharded_spec
from torchledger.planner.stack import stack
from torchledger.planner.tensor_sums import tensor_sums
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, Strategy

#: Gemma 2B has one key-value head of eight (arXiv:2403.08295, table 1); here as many layers as tell it.
GEMMA = ModelSpec("gemma", 256, 64, 1, 2048, AttentionSpec(8, 1, head_size=256), MlpSpec(16384))


def test_several_ranks_hold_the_same_head_where_there_are_fewer():
    """Eight ranks: of one head eight copies, of four heads two each, of eight one."""
    layout = Strategy(tensor_parallel=8)
    heads = (replace(GEMMA, attention=replace(GEMMA.attention, num_key_value_heads=each)) for each in (1, 4, 8, None))
    assert [num_copies(each, layout) for each in heads] == [8, 2, 1, 1]


@pytest.mark.parametrize(("ranks", "columns"), [(1, 8 + 2), (4, 2 + 2), (8, 1 + 2)])
def test_a_rank_has_its_query_heads_and_a_whole_key_value_head(ranks, columns):
    """Of 8 query heads a share, of one key-value head all of key and value: so many matrices of 256 rows."""
    part = sharded_spec(GEMMA, Strategy(tensor_parallel=ranks), stack("torchledger"))
    made = [each for each in parameters(part) if each.name.endswith(("query.weight", "key.weight", "value.weight"))]
    assert sum(each.num_elements for each in made) == columns * 256 * 2048


def test_only_key_and_value_have_fewer_cutters():
    """Their matrices, biases, an adapter's B and a norm over all keys; queries are cut among all ranks."""
    layout = Strategy(tensor_parallel=8)
    spec = replace(GEMMA, attention=replace(GEMMA.attention, num_key_value_heads=2))
    heads = ("key.weight", "value.bias", "key.lora_b.weight", "key_norm.weight")
    assert {cutters_of(f"layers.*.attention.{name}", spec, layout) for name in heads} == {2}
    others = ("query.weight", "query.lora_b.weight", "key.lora_a.weight", "query_norm.weight", "output.weight")
    assert {cutters_of(f"layers.*.attention.{name}", spec, layout) for name in others} == {8}


def test_ranks_that_hold_the_same_head_add_up_its_gradient():
    """Two heads over eight ranks: four share a head, and send 2·3/4 of its key and value matrix each."""
    layout = Strategy(tensor_parallel=8)
    spec = replace(GEMMA, attention=replace(GEMMA.attention, num_key_value_heads=2))
    sums = {line.module: line for line in tensor_sums(spec, Recipe(precision="fp32"), layout)}
    made = {name: line for name, line in sums.items() if name.endswith(("query.weight", "key.weight", "value.weight"))}
    assert sorted(name.split(".")[-2] for name in made) == ["key", "value"]
    assert {line.work.bytes_sent for line in made.values()} == {2 * 3 / 4 * 4 * 256 * 2048}


def test_latent_attention_expands_a_key_for_every_head():
    """Nothing is held twice, and what makes keys and values is cut among all ranks."""
    latent = AttentionSpec(
        8, kind="latent", key_value_rank=16, rotary_head_size=4, plain_head_size=8, value_head_size=6
    )
    spec, layout = replace(GEMMA, attention=latent), Strategy(tensor_parallel=8)
    assert (num_copies(spec, layout), cutters_of("layers.*.attention.key_value_up.weight", spec, layout)) == (1, 8)
