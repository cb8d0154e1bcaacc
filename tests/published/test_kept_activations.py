"""Kept activations of a layer on one rank against the published equations of Megatron-LM."""

import pytest

from torchledger.planner.block import pieces
from torchledger.planner.stack import stack
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, PositionSpec, Recipe, Strategy

s, b, a, h = 256, 4, 8, 512  # sequence, micro-batch, heads, width: the paper's letters
BIASES = dict.fromkeys(("query_bias", "key_bias", "value_bias", "output_bias"), True)
GPT = ModelSpec(
    "gpt",
    1024,
    2048,
    2,
    h,
    AttentionSpec(a, dropout=0.1, **BIASES),
    MlpSpec(4 * h, "plain", "gelu", up_bias=True, down_bias=True),
    norm=NormSpec("layer", bias=True),
    position=PositionSpec("learned"),
    dropout=0.1,
)


@pytest.mark.parametrize("t", [2, 8])
@pytest.mark.parametrize(
    ("recompute", "per_sbh"), [("none", 34 + 5 * a * s / h), ("selective", 34), ("full", 2)], ids=str
)
def test_tensor_and_sequence_parallel_ranks_share_all_of_it(t, recompute, per_sbh):
    """s·b·h/t·(34 + 5·a·s/h), without the scores 34·s·b·h/t: arXiv:2205.05198, equations 4 and 6."""
    recipe = Recipe(batch_size=b, sequence_length=s, precision="bf16-master", recompute=recompute)
    strategy = Strategy(stack="megatron-2021", tensor_parallel=t, sequence_parallel=True, micro_batch_size=b)
    layer = pieces(GPT, recipe, strategy, stack("megatron-2021"))[1].block
    statistics = 0 if recompute == "full" else 2 * (2 * 4 * s * b) // t  # of two norms, which the paper leaves out
    assert layer.kept_bytes == s * b * h / t * per_sbh + statistics
