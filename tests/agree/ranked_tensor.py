"""Cases of `ranked_steps` in which ranks split matrices: everything that a model or a recipe can have beside them."""

from dataclasses import replace

from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    OptimizerSpec,
    Recipe,
    Strategy,
)

#: 131 tokens: neither two nor four ranks share them evenly.
LLAMA = ModelSpec("llama", 131, 32, 2, 32, AttentionSpec(4, num_key_value_heads=4), MlpSpec(48))
GPT = replace(
    LLAMA,
    attention=AttentionSpec(4, query_bias=True, key_bias=True, value_bias=True, output_bias=True),
    mlp=MlpSpec(48, "plain", "gelu", up_bias=True, down_bias=True),
    norm=NormSpec("layer", bias=True),
    tied_embeddings=True,
)
CAPPED = replace(LLAMA, head_bias=True, final_logit_soft_cap=5.0)
OLMO = replace(LLAMA, attention=replace(LLAMA.attention, query_key_norm="full"), norm=NormSpec(placement="post"))
CHAMELEON = replace(OLMO, norm=NormSpec("layer", bias=True))
FACTORED = replace(LLAMA, embedding_size=20, tied_embeddings=True)
LATENT = replace(
    LLAMA,
    attention=AttentionSpec(
        4, kind="latent", query_rank=12, key_value_rank=16, rotary_head_size=4, plain_head_size=8, value_head_size=6
    ),
)
LATENT_PLAIN = replace(LATENT, attention=replace(LATENT.attention, query_rank=0))
MIXTURE = replace(LLAMA, moe=MoeSpec(4, 2, 16))
BIASED = replace(
    GPT,
    tied_embeddings=False,
    moe=MoeSpec(4, 2, 16, shared_intermediate_size=12, shared_gate=True, num_leading_dense_layers=1, scoring="sigmoid"),
)
DROPPED = replace(LLAMA, dropout=0.2, attention=replace(LLAMA.attention, dropout=0.3))
#: Matrices of 4,096 elements and more, whose averages are kept in 8 bit.
WIDE = replace(GPT, vocab_size=129, hidden_size=64, mlp=replace(GPT.mlp, intermediate_size=96))
FURTHER = replace(LLAMA, num_prediction_layers=2)
DEEPSEEK = replace(LATENT, num_prediction_layers=1, moe=MoeSpec(4, 2, 16, shared_intermediate_size=12))

RECIPE = Recipe(
    batch_size=4, sequence_length=16, num_tokens=8 * 4 * 16, optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=1)
)
TWICE = replace(RECIPE, accumulation_steps=2)
AGAIN = replace(RECIPE, recompute="full")
PIECES = replace(RECIPE, loss_chunk=24)  # 64 tokens: 24, 24 and 16
ADAPTED = replace(RECIPE, lora_rank=3)
MATH = replace(RECIPE, attention="math")
#: Adam's first updates are signs of gradients, which a rounding may turn; those of SGD are as near as the gradients.
NEAR = replace(
    RECIPE, optimizer=OptimizerSpec(kind="sgd", implementation="foreach", learning_rate=0.05, warmup_steps=1)
)
BF16, PURE, FP8 = (replace(NEAR, precision=precision) for precision in ("bf16", "bf16-pure", "fp8"))
MUON = replace(RECIPE, optimizer=replace(RECIPE.optimizer, kind="muon"))
ADAFACTOR = replace(RECIPE, optimizer=replace(RECIPE.optimizer, kind="adafactor"))
EIGHT_BIT = replace(RECIPE, optimizer=replace(RECIPE.optimizer, kind="adamw-8bit"))
BALANCED = replace(RECIPE, load_balance=0.1)

SPLIT = Strategy(tensor_parallel=2)
BY_TOKENS = Strategy(tensor_parallel=2, sequence_parallel=True)
REPLICAS = Strategy(data_parallel=2, tensor_parallel=2)
SHARDS = Strategy(data_parallel=2, tensor_parallel=2, sequence_parallel=True, shard_level=3)

TENSOR_CASES = {
    "split, the loss in pieces": (2, GPT, PIECES, SPLIT),
    "by tokens, the loss in pieces": (2, CAPPED, replace(PIECES, accumulation_steps=2), BY_TOKENS),
    "split, with adapters": (2, GPT, ADAPTED, SPLIT),
    "by tokens, with adapters": (2, LLAMA, replace(ADAPTED, accumulation_steps=2), BY_TOKENS),
    "by tokens, adapters run again": (2, GPT, replace(ADAPTED, recompute="full"), BY_TOKENS),
    "split, the head alone trained": (2, LLAMA, replace(RECIPE, trainable=("head",)), SPLIT),
    "by tokens, the last layer alone trained": (2, GPT, replace(RECIPE, trainable=("layers.1",)), BY_TOKENS),
    "split, a mixture": (2, MIXTURE, BALANCED, SPLIT),
    "by tokens, a mixture": (2, MIXTURE, BALANCED, BY_TOKENS),
    "by tokens, a mixture with biases": (2, BIASED, replace(BALANCED, recompute="full"), BY_TOKENS),
    "split, a mixture with adapters": (2, BIASED, ADAPTED, SPLIT),
    "split, latent attention": (2, LATENT, RECIPE, SPLIT),
    "by tokens, latent attention with adapters": (2, LATENT, ADAPTED, BY_TOKENS),
    "by tokens, latent attention": (2, LATENT_PLAIN, AGAIN, BY_TOKENS),
    "split, a norm over all heads": (2, OLMO, AGAIN, SPLIT),
    "by tokens, a norm over all heads": (2, CHAMELEON, RECIPE, BY_TOKENS),
    "split, a factored embedding": (2, FACTORED, RECIPE, SPLIT),
    "by tokens, a factored embedding": (2, FACTORED, TWICE, BY_TOKENS),
    "split, predicting further": (2, FURTHER, RECIPE, SPLIT),
    "by tokens, predicting further": (2, FURTHER, replace(PIECES, recompute="full"), BY_TOKENS),
    "by tokens, latent attention and a mixture, predicting further": (2, DEEPSEEK, BALANCED, BY_TOKENS),
    "split, with dropout": (2, DROPPED, MATH, SPLIT),
    "split, with dropout, run again": (2, DROPPED, replace(MATH, recompute="full", accumulation_steps=2), SPLIT),
    "split, with dropout, attention run again": (2, DROPPED, replace(MATH, recompute="selective"), SPLIT),
    "by tokens, with dropout": (2, DROPPED, replace(MATH, recompute="full", accumulation_steps=2), BY_TOKENS),
    "split, stored in bf16": (2, GPT, PURE, SPLIT),
    "by tokens, stored in bf16, a norm over all heads": (
        2,
        CHAMELEON,
        replace(PURE, precision="bf16-moments"),
        BY_TOKENS,
    ),
    "by tokens, stored in bf16, a mixture in pieces": (
        2,
        MIXTURE,
        replace(PURE, precision="bf16-master", loss_chunk=24),
        BY_TOKENS,
    ),
    "split, a mixture in bf16": (2, BIASED, replace(BF16, load_balance=0.1), SPLIT),
    "by tokens, adapters in bf16": (2, GPT, replace(BF16, lora_rank=3), BY_TOKENS),
    "by tokens, a factored embedding in bf16": (2, FACTORED, BF16, BY_TOKENS),
    "by tokens, a factored embedding, norms behind, in bf16": (
        2,
        replace(FACTORED, norm=NormSpec(placement="post")),
        replace(BF16, recompute="full"),
        BY_TOKENS,
    ),
    "split, a factored embedding of a mixture, norms without weights, in bf16": (
        2,
        replace(FACTORED, moe=MoeSpec(4, 2, 16, num_leading_dense_layers=1), norm=NormSpec(affine=False)),
        BF16,
        SPLIT,
    ),
    "by tokens, latent attention in bf16, predicting further": (
        2,
        DEEPSEEK,
        replace(BF16, load_balance=0.1),
        BY_TOKENS,
    ),
    "split, a norm over all heads in bf16, in pieces": (2, OLMO, replace(BF16, loss_chunk=24), SPLIT),
    "split, in fp8": (2, replace(GPT, mlp=replace(GPT.mlp, intermediate_size=64)), FP8, SPLIT),
    "by tokens, in fp8 with adapters": (
        2,
        replace(LLAMA, mlp=MlpSpec(64)),
        replace(FP8, lora_rank=3, recompute="full"),
        BY_TOKENS,
    ),
    "split, adapters in fp16": (2, LLAMA, replace(ADAPTED, precision="fp16"), SPLIT),
    "by tokens, in fp16": (2, LLAMA, replace(NEAR, precision="fp16"), BY_TOKENS),
    "shards by tokens, stored in bf16": (4, GPT, PURE, SHARDS),
    "shards by tokens, in fp8": (4, replace(LLAMA, mlp=MlpSpec(64)), FP8, SHARDS),
    "shards by tokens, a mixture, predicting further": (4, DEEPSEEK, BALANCED, SHARDS),
    "replicas, split, stored in bf16": (4, LLAMA, replace(PURE, precision="bf16-master"), REPLICAS),
    "split, under muon": (2, BIASED, MUON, SPLIT),
    "by tokens, adapters under muon": (2, LATENT, replace(MUON, lora_rank=3), BY_TOKENS),
    "shards by tokens, under muon": (4, GPT, MUON, SHARDS),
    "shards by tokens, adapters under muon": (4, GPT, replace(MUON, lora_rank=3), SHARDS),
    "split, under adafactor": (2, BIASED, ADAFACTOR, SPLIT),
    "by tokens, adapters under adafactor": (2, GPT, replace(ADAFACTOR, lora_rank=3), BY_TOKENS),
    "shards by tokens, under adafactor": (4, GPT, ADAFACTOR, SHARDS),
    "split, under adamw in 8 bit": (2, WIDE, EIGHT_BIT, SPLIT),
    "shards by tokens, under adamw in 8 bit": (4, WIDE, EIGHT_BIT, SHARDS),
    "replicas, split, with adapters": (4, LLAMA, ADAPTED, REPLICAS),
    "replicas, split, a mixture": (4, MIXTURE, BALANCED, replace(REPLICAS, micro_batch_size=2)),
    "shards by tokens, a norm over all heads, in pieces": (4, OLMO, PIECES, SHARDS),
    "shards by tokens, with adapters": (4, GPT, ADAPTED, SHARDS),
}

#: What each of the others has a neighbour among.
OFTEN = frozenset(
    {
        "by tokens, the loss in pieces",
        "by tokens, adapters run again",
        "by tokens, a mixture with biases",
        "by tokens, latent attention and a mixture, predicting further",
        "split, with dropout, run again",
        "split, in fp8",
        "shards by tokens, under adamw in 8 bit",
    }
)
RARELY = TENSOR_CASES.keys() - OFTEN
assert TENSOR_CASES.keys() >= OFTEN
