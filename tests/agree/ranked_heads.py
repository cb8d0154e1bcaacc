"""Cases of `ranked_steps` in which there are fewer key-value heads than ranks, so that several hold the same one."""

from dataclasses import replace

from ranked_tensor import (
    ADAFACTOR,
    ADAPTED,
    AGAIN,
    BALANCED,
    BY_TOKENS,
    CHAMELEON,
    DROPPED,
    EIGHT_BIT,
    FP8,
    GPT,
    LLAMA,
    MATH,
    MIXTURE,
    MUON,
    NEAR,
    PIECES,
    PURE,
    RECIPE,
    REPLICAS,
    SHARDS,
    SPLIT,
    TWICE,
    WIDE,
)

from torchledger.spec import MlpSpec, Strategy


def _with(spec, **changes):
    return replace(spec, attention=replace(spec.attention, **changes))


#: One key-value head of all, or two of eight queries: every other rank of four has the same.
ONE = _with(LLAMA, num_key_value_heads=1)
TWO = _with(LLAMA, num_heads=8, num_key_value_heads=2)
GPT_TWO = _with(GPT, num_heads=8, num_key_value_heads=2)
QWEN = _with(GPT_TWO, query_key_norm="head")
OLMO_ONE = _with(ONE, query_key_norm="full")
OLMO_TWO = _with(CHAMELEON, num_heads=8, num_key_value_heads=2)
#: Key and value have 4,096 elements and more.
WIDE_ONE = _with(WIDE, num_key_value_heads=1, head_size=64)
WIDE_TWO = _with(WIDE, num_key_value_heads=2, head_size=32)

FOUR = Strategy(tensor_parallel=4)
FOUR_BY_TOKENS = Strategy(tensor_parallel=4, sequence_parallel=True)
FOUR_SHARDS = Strategy(data_parallel=2, tensor_parallel=4, sequence_parallel=True, shard_level=3)
HYBRID = Strategy(data_parallel=4, tensor_parallel=2, shard_level=3, shard_group=2)

HEAD_CASES = {
    "split, one key-value head": (2, ONE, RECIPE, SPLIT),
    "split, one key-value head, with dropout": (2, _with(DROPPED, num_key_value_heads=1), MATH, SPLIT),
    "by tokens, one key-value head, with adapters": (2, ONE, replace(ADAPTED, accumulation_steps=2), BY_TOKENS),
    "split, two key-value heads": (4, TWO, RECIPE, FOUR),
    "split, two key-value heads with adapters": (4, GPT_TWO, ADAPTED, FOUR),
    "split, two key-value heads, one layer trained": (4, QWEN, replace(RECIPE, trainable=("layers.1",)), FOUR),
    "split, two key-value heads, a mixture": (4, _with(MIXTURE, num_heads=8, num_key_value_heads=2), BALANCED, FOUR),
    "split, two key-value heads, predicting further": (4, replace(TWO, num_prediction_layers=1), PIECES, FOUR),
    "split, two key-value heads in fp16": (4, TWO, replace(NEAR, precision="fp16"), FOUR),
    "split, two key-value heads in fp8 with adapters": (
        4,
        _with(replace(TWO, mlp=MlpSpec(64)), head_size=16),
        replace(FP8, lora_rank=3),
        FOUR,
    ),
    "split, two key-value heads under muon": (4, GPT_TWO, MUON, FOUR),
    "split, two key-value heads under adafactor": (4, OLMO_TWO, ADAFACTOR, FOUR),
    "by tokens, two key-value heads with biases and norms": (4, QWEN, TWICE, FOUR_BY_TOKENS),
    "by tokens, two key-value heads, a norm over all heads": (4, OLMO_TWO, AGAIN, FOUR_BY_TOKENS),
    "by tokens, two key-value heads stored in bf16": (4, GPT_TWO, PURE, FOUR_BY_TOKENS),
    "by tokens, two key-value heads under adamw in 8 bit": (4, WIDE_TWO, EIGHT_BIT, FOUR_BY_TOKENS),
    "replicas, split, one key-value head": (4, ONE, TWICE, REPLICAS),
    "shards by tokens, one key-value head": (4, ONE, RECIPE, SHARDS),
    "shards by tokens, one key-value head, under muon": (4, OLMO_ONE, MUON, SHARDS),
    "shards by tokens, one key-value head, under adamw in 8 bit": (4, WIDE_ONE, EIGHT_BIT, SHARDS),
    "replicas, split, two key-value heads": (8, OLMO_TWO, TWICE, replace(FOUR, data_parallel=2)),
    "shards by tokens, two key-value heads": (8, QWEN, TWICE, FOUR_SHARDS),
    "shards by tokens, two key-value heads under adafactor": (8, OLMO_TWO, ADAFACTOR, FOUR_SHARDS),
    "shards by tokens, two key-value heads, adapters under muon": (8, GPT_TWO, replace(MUON, lora_rank=3), FOUR_SHARDS),
    "replicas of shards, split, one key-value head": (8, ONE, RECIPE, HYBRID),
}

#: One each of one head and of two, in shards and without.
OFTEN = frozenset(
    {
        "by tokens, one key-value head, with adapters",
        "by tokens, two key-value heads, a norm over all heads",
        "shards by tokens, one key-value head, under muon",
    }
)
RARE_HEAD_CASES = HEAD_CASES.keys() - OFTEN
assert HEAD_CASES.keys() >= OFTEN
