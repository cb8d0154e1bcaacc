"""Steps of the trainer on real ranks over gloo, and what each gave: a file that spawned processes find."""

from dataclasses import replace

import torch
import torch.distributed as dist
from ranked_heads import HEAD_CASES
from ranked_shards import RARE_SHARD_CASES, SHARD_CASES
from ranked_tensor import TENSOR_CASES

from torchledger.cli.torchrun import leave
from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    OptimizerSpec,
    PositionSpec,
    Recipe,
    Strategy,
)
from torchledger.tracer import Recorder
from torchledger.trainer.layout import local_recipe, require_layout
from torchledger.trainer.process_group import Crew, process_group
from torchledger.trainer.ranks import Ranks
from torchledger.trainer.seeds import seed_step
from torchledger.trainer.step import build_step, micro_batches
from torchledger.trainer.targets import IGNORED

STEPS = 3
ALONE = Ranks()

#: 131 tokens: neither two nor four ranks share them evenly.
LLAMA = ModelSpec("llama", 131, 32, 2, 32, AttentionSpec(4, num_key_value_heads=4), MlpSpec(48))
GPT = replace(
    LLAMA,
    attention=AttentionSpec(4, query_bias=True, key_bias=True, value_bias=True, output_bias=True),
    mlp=MlpSpec(48, "plain", "gelu", up_bias=True, down_bias=True),
    norm=NormSpec("layer", bias=True),
    position=PositionSpec("learned"),
    tied_embeddings=True,
    embedding_scale=True,
)
GEMMA = replace(
    LLAMA,
    attention=replace(LLAMA.attention, query_key_norm="head", logit_soft_cap=3.0, window_pattern=(4, 0)),
    norm=NormSpec(unit_offset=True, placement="sandwich"),
    final_logit_soft_cap=5.0,
)
BLOOM = replace(LLAMA, position=PositionSpec("alibi"), embedding_norm=True, norm=NormSpec("layer", affine=False))
#: Attention and MLP read the same input.
ASIDE = replace(LLAMA, parallel=True, norm=NormSpec("layer", bias=True, shared=True))
#: Two ranks share the 45 rows of its gates and ups as 23 and 22.
UNEVEN = replace(LLAMA, mlp=MlpSpec(45))
MIXTURE = replace(LLAMA, moe=MoeSpec(4, 2, 16))

RECIPE = Recipe(
    batch_size=4, sequence_length=16, num_tokens=8 * 4 * 16, optimizer=OptimizerSpec(learning_rate=1e-2, warmup_steps=1)
)
TWICE = replace(RECIPE, accumulation_steps=2)
UNCLIPPED = replace(RECIPE, optimizer=replace(RECIPE.optimizer, gradient_clip=0.0))
BF16 = replace(RECIPE, precision="bf16")
FP8 = replace(RECIPE, precision="fp8")
MUON = replace(RECIPE, optimizer=replace(RECIPE.optimizer, kind="muon"))
APART = replace(RECIPE, document_mask=True)

#: Of its rows all 16 targets count, one, none, and eight: a rank, or a micro-batch, may have none at all.
UNEVENLY = replace(RECIPE, seed=1)
COUNTED = (16, 1, 0, 8)

SPLIT = Strategy(tensor_parallel=2)
BY_TOKENS = Strategy(tensor_parallel=2, sequence_parallel=True)
SHARDED = Strategy(data_parallel=2, shard_level=3)
HYBRID = Strategy(data_parallel=4, shard_level=3, shard_group=2)

#: name -> (ranks, model, recipe, layout)
CASES = {
    "replicas": (2, LLAMA, RECIPE, Strategy(data_parallel=2)),
    "replicas, accumulating": (2, GPT, TWICE, Strategy(data_parallel=2)),
    "replicas of a mixture": (2, MIXTURE, UNCLIPPED, Strategy(data_parallel=2)),
    "replicas in bf16": (2, LLAMA, BF16, Strategy(data_parallel=2)),
    "replicas in fp8": (2, LLAMA, FP8, Strategy(data_parallel=2)),
    "small micro-batches": (2, LLAMA, RECIPE, Strategy(data_parallel=2, micro_batch_size=1)),
    "shards": (2, LLAMA, RECIPE, SHARDED),
    "shards, accumulating": (2, GPT, TWICE, SHARDED),
    "shards of a mixture": (2, MIXTURE, UNCLIPPED, SHARDED),
    "shards, kept gathered": (2, GEMMA, RECIPE, replace(SHARDED, reshard=False)),
    "shards in bf16": (2, LLAMA, BF16, SHARDED),
    "shards under muon": (2, UNEVEN, MUON, SHARDED),
    "split": (2, LLAMA, RECIPE, SPLIT),
    "split, with biases": (2, GPT, TWICE, SPLIT),
    "split, with norms of heads": (2, GEMMA, RECIPE, SPLIT),
    "split, with slopes": (2, BLOOM, UNCLIPPED, SPLIT),
    "split, documents apart": (2, LLAMA, APART, SPLIT),
    "split, documents apart, with slopes": (2, BLOOM, replace(APART, attention="math"), SPLIT),
    "by tokens": (2, LLAMA, RECIPE, BY_TOKENS),
    "by tokens, with biases": (2, GPT, TWICE, BY_TOKENS),
    "by tokens, with norms of heads": (2, GEMMA, RECIPE, BY_TOKENS),
    "by tokens, with slopes": (2, BLOOM, RECIPE, BY_TOKENS),
    "by tokens, documents apart": (2, GEMMA, replace(APART, accumulation_steps=2), BY_TOKENS),
    "by tokens, run again": (2, LLAMA, replace(RECIPE, recompute="full"), BY_TOKENS),
    "by tokens, one of two layers run again": (
        2,
        LLAMA,
        replace(RECIPE, recompute="full", recompute_layers=1),
        BY_TOKENS,
    ),
    "by tokens, run again with norms of heads": (2, GEMMA, replace(RECIPE, recompute="full"), BY_TOKENS),
    "split, side by side": (2, ASIDE, RECIPE, SPLIT),
    "by tokens, side by side, run again": (2, ASIDE, replace(RECIPE, recompute="full"), BY_TOKENS),
    "by tokens in bf16": (2, LLAMA, BF16, BY_TOKENS),
    "replicas, few targets": (2, LLAMA, UNEVENLY, Strategy(data_parallel=2)),
    "replicas, few targets, predicting further": (
        2,
        replace(LLAMA, num_prediction_layers=2),
        UNEVENLY,
        Strategy(data_parallel=2),
    ),
    "replicas of a mixture, few targets, balanced": (
        2,
        replace(MIXTURE, num_prediction_layers=1),
        replace(UNEVENLY, load_balance=0.1),
        Strategy(data_parallel=2),
    ),
    "shards, few targets, accumulating": (2, GPT, replace(UNEVENLY, accumulation_steps=2), SHARDED),
    "by tokens, few targets": (2, LLAMA, replace(UNEVENLY, accumulation_steps=4), BY_TOKENS),
    "replicas of shards, few targets": (4, GPT, UNEVENLY, HYBRID),
    "replicas, split, few targets": (
        4,
        LLAMA,
        replace(UNEVENLY, accumulation_steps=2),
        replace(SPLIT, data_parallel=2),
    ),
    "shards by tokens, few targets": (4, GPT, UNEVENLY, replace(BY_TOKENS, data_parallel=2, shard_level=3)),
    "four shards": (4, LLAMA, RECIPE, Strategy(data_parallel=4, shard_level=3)),
    "replicas of shards under muon": (4, GPT, MUON, HYBRID),
    "replicas of shards": (4, GPT, RECIPE, HYBRID),
    "replicas, split": (4, LLAMA, TWICE, replace(SPLIT, data_parallel=2)),
    "shards by tokens": (4, GPT, TWICE, replace(BY_TOKENS, data_parallel=2, shard_level=3)),
    "shards by tokens, with norms of heads": (4, GEMMA, RECIPE, replace(BY_TOKENS, data_parallel=2, shard_level=3)),
    **TENSOR_CASES,
    **HEAD_CASES,
    **SHARD_CASES,
    **RARE_SHARD_CASES,
}


def data(spec, recipe):
    """Inputs and targets of one step, the whole batch; where documents are kept apart, the number of each token's."""
    ids = torch.randint(0, spec.vocab_size, (4, 17), generator=torch.Generator().manual_seed(0))
    documents = (torch.arange(16) // 5).expand(4, -1) + torch.arange(4)[:, None]
    tokens, targets = ids[:, :-1], ids[:, 1:].clone()
    if recipe.seed == UNEVENLY.seed:
        for row, count in enumerate(COUNTED):
            targets[row, count:] = IGNORED
    return (tokens, targets, documents) if recipe.document_mask else (tokens, targets)


def steps(spec, recipe, strategy=None, ranks=ALONE, begin=None):
    """Losses, gradient norms and final weights of a few steps, and the collectives of the last one.

    `begin` seeds a step of this number, where not as every rank does.
    """
    mine = recipe if strategy is None else local_recipe(recipe, strategy)
    share = 0 if strategy is None else ranks.data_rank(strategy.tensor_parallel)
    rows = slice(share * mine.batch_size, (share + 1) * mine.batch_size)
    with torch.device("cpu"):
        step = build_step(spec, mine, strategy=strategy)
    batches = micro_batches(tuple(each[rows] for each in data(spec, mine)), mine.accumulation_steps)
    told, recorder = [], Recorder()
    stream = 0 if strategy is None else ranks.drawing_rank(strategy)
    for number in range(STEPS):
        seed_step(recipe.seed, number, stream) if begin is None else begin(number)
        if number < STEPS - 1:
            result = step(batches, number)
        else:
            with recorder:
                result = step(batches, number)
        told.append((result.loss.item(), None if result.gradient_norm is None else result.gradient_norm.item()))
    weights = {
        name: (p.full_tensor() if hasattr(p, "full_tensor") else p).detach().clone()
        for name, p in step.model.named_parameters()
    }
    return told, weights, sent(recorder.trace())


def sent(trace):
    """Bytes that a rank sends in a step, by the name of the collective."""
    found = {}
    for line in getattr(trace, "ledger", trace):
        if line.kind == "collective":
            name = line.op.partition(" ")[0]
            found[name] = found.get(name, 0) + line.total.bytes_sent
    return found


def rank_of_all(rank, size, folder, names):
    """One real rank, through those cases of so many ranks that are asked for."""
    torch.set_num_threads(1)
    ranks = Ranks(rank, size, rank)
    store = dist.FileStore(f"{folder}/store", size)
    found = {}
    with process_group(Crew(ranks, store), torch.device("cpu")):
        for name, (needed, spec, recipe, strategy) in CASES.items():
            if needed == size and name in names:
                require_layout(spec, recipe, strategy, ranks)
                found[name] = steps(spec, recipe, strategy, ranks)
    torch.save(found, f"{folder}/{rank}")
    leave(0)
