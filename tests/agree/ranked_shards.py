"""Cases of `ranked_steps` in which ranks share a model: what is frozen, stored in 16 bit, updated by whole tensors."""

from dataclasses import replace

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, OptimizerSpec, Recipe, Strategy

#: 131 tokens: neither two nor four ranks share them evenly. Its tables of 4,192 elements have 8-bit averages in blocks
#: of 2,048, which shards of 66 and 65 rows of 32 cut.
LLAMA = ModelSpec("llama", 131, 32, 2, 32, AttentionSpec(4, num_key_value_heads=4), MlpSpec(45))
TIED = replace(
    LLAMA,
    attention=AttentionSpec(4, query_bias=True, value_bias=True),
    norm=NormSpec("layer", bias=True),
    tied_embeddings=True,
)
FURTHER = replace(LLAMA, num_prediction_layers=2)
MIXTURE = replace(LLAMA, moe=MoeSpec(4, 2, 16, shared_intermediate_size=12, shared_gate=True))

RECIPE = Recipe(
    batch_size=4, sequence_length=16, num_tokens=8 * 4 * 16, optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=1)
)
ADAPTED = replace(RECIPE, lora_rank=3)
PIECES = replace(RECIPE, loss_chunk=24)  # 32 tokens a rank: 24 and 8

SHARDED = Strategy(data_parallel=2, shard_level=3)
KEPT = replace(SHARDED, reshard=False)
HYBRID = Strategy(data_parallel=4, shard_level=3, shard_group=2)


def _of(kind, precision="fp32", **changes):
    return replace(RECIPE, precision=precision, optimizer=replace(RECIPE.optimizer, kind=kind), **changes)


UNCLIPPED = _of("adamw-8bit")
UNCLIPPED = replace(UNCLIPPED, optimizer=replace(UNCLIPPED.optimizer, gradient_clip=0.0))

SHARD_CASES = {
    "replicas of adapters": (2, LLAMA, ADAPTED, Strategy(data_parallel=2)),
    "shards of adapters": (2, LLAMA, replace(ADAPTED, precision="bf16-master", accumulation_steps=2), SHARDED),
    "shards, the last layer trained": (2, LLAMA, replace(RECIPE, trainable=("layers.1",), recompute="full"), SHARDED),
    "shards, the head of three losses trained": (2, FURTHER, replace(RECIPE, trainable=("head",)), SHARDED),
    "shards stored in bf16, kept gathered, the loss in pieces": (
        2,
        LLAMA,
        _of("sgd", "bf16-pure", loss_chunk=24),
        KEPT,
    ),
    "shards under adafactor": (2, LLAMA, _of("adafactor"), SHARDED),
    "shards under 8-bit averages": (2, LLAMA, UNCLIPPED, SHARDED),
    "shards, prediction layers": (2, FURTHER, replace(PIECES, recompute="full"), SHARDED),
    "shards, tied prediction layers": (2, replace(FURTHER, tied_embeddings=True), PIECES, KEPT),
    "replicas of shards of adapters": (4, TIED, ADAPTED, HYBRID),
    "replicas of shards under 8-bit averages": (4, TIED, _of("adamw-8bit", "fp16"), HYBRID),
}

#: Such as differ from the others in one thing each, for proofs.
RARE_SHARD_CASES = {
    "shards of adapters in fp8 with a tied head, kept gathered": (2, TIED, replace(ADAPTED, precision="fp8"), KEPT),
    "shards, a tied head's norm trained": (2, TIED, replace(RECIPE, trainable=("head",)), SHARDED),
    "shards, prediction layers trained": (2, FURTHER, replace(RECIPE, trainable=("prediction",)), SHARDED),
    "shards in fp16": (2, LLAMA, _of("adamw", "fp16"), SHARDED),
    "shards stored in bf16 under muon": (2, LLAMA, _of("muon", "bf16-moments"), KEPT),
    "shards of a mixture under adafactor": (2, MIXTURE, _of("adafactor", accumulation_steps=2), SHARDED),
    "shards, the loss in pieces": (2, TIED, replace(PIECES, accumulation_steps=2), SHARDED),
    "replicas of shards under adafactor": (4, LLAMA, _of("adafactor", "bf16-pure"), HYBRID),
    "four shards under 8-bit averages": (4, LLAMA, _of("adamw-8bit", "bf16-master"), replace(SHARDED, data_parallel=4)),
}
