"""`shard`: the model and the recipe as one rank sees them. Sharding rewrites the question, not the answer.

Tensor parallel ranks have a share of the heads, of the MLP's inner width and of the vocabulary (arXiv:1909.08053);
context parallel ranks a share of the tokens; expert parallel ranks a share of the experts. What a rewritten spec cannot
say (tokens that sequence parallelism divides, keys of the whole sequence that a rank's queries see) is done to the
lines afterwards, in `block`.
"""

from __future__ import annotations

from dataclasses import replace

from torchledger.planner.stack import Stack
from torchledger.spec import ModelSpec, MoeSpec, Recipe, Strategy


def sharded_spec(spec: ModelSpec, strategy: Strategy, stack: Stack) -> ModelSpec:
    """The model with the sizes that one rank holds. Shape rules are `rules.refusals`'s matter and hold here.

    >>> from torchledger.planner.stack import stack
    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> tiny = ModelSpec("tiny", 1024, 64, 2, 64, AttentionSpec(8, num_key_value_heads=2), MlpSpec(256))
    >>> part = sharded_spec(tiny, Strategy(tensor_parallel=4), stack("megatron"))
    >>> part.attention.num_heads, part.num_key_value_heads, part.mlp.intermediate_size, part.hidden_size
    (2, 1, 64, 64)
    """
    ranks = strategy.tensor_parallel
    attention = replace(
        spec.attention,
        num_heads=_share(spec.attention.num_heads, ranks),
        num_key_value_heads=_share(spec.num_key_value_heads, ranks),
        head_size=spec.attention.head_size if spec.attention.kind == "latent" else spec.head_size,
    )
    return replace(
        spec,
        vocab_size=sharded_vocab_size(spec, strategy, stack),
        attention=attention,
        mlp=replace(spec.mlp, intermediate_size=_share(spec.mlp.intermediate_size, ranks)),
        moe=None if spec.moe is None else _experts(spec.moe, strategy),
    )


def sharded_vocab_size(spec: ModelSpec, strategy: Strategy, stack: Stack) -> int:
    """Rows of the vocabulary on one rank, padded as the stack pads it."""
    ranks = strategy.tensor_parallel if strategy.vocab_parallel else 1
    return _share(stack.padded_vocab(spec.vocab_size, strategy.tensor_parallel), ranks)


def sharded_recipe(recipe: Recipe, strategy: Strategy) -> Recipe:
    """One micro-batch of one rank: its sequences, and its share of their tokens."""
    return replace(
        recipe,
        batch_size=micro_batch_size(recipe, strategy),
        accumulation_steps=1,
        sequence_length=_share(recipe.sequence_length, strategy.context_parallel),
    )


def micro_batch_size(recipe: Recipe, strategy: Strategy) -> int:
    """Sequences that a replica runs at once.

    >>> micro_batch_size(Recipe(batch_size=64, accumulation_steps=2), Strategy(data_parallel=8))
    4
    """
    if strategy.micro_batch_size:
        return strategy.micro_batch_size
    return max(1, recipe.batch_size // (strategy.data_parallel * recipe.accumulation_steps))


def num_micro_batches(recipe: Recipe, strategy: Strategy) -> int:
    """Micro-batches that a replica runs in a step.

    >>> num_micro_batches(Recipe(batch_size=64), Strategy(data_parallel=8, micro_batch_size=2))
    4
    """
    return max(1, recipe.batch_size // (strategy.data_parallel * micro_batch_size(recipe, strategy)))


def _share(size: int, ranks: int) -> int:
    """One rank's share; a size smaller than the ranks is repeated on them (key-value heads)."""
    return max(1, -(-size // ranks))


def _experts(moe: MoeSpec, strategy: Strategy) -> MoeSpec:
    """Routed experts over the expert parallel ranks, each cut by its own tensor parallel ranks; a shared one by tp."""
    cut = strategy.expert_tensor_parallel or strategy.tensor_parallel
    shared = moe.shared_intermediate_size
    return replace(
        moe,
        num_experts=_share(moe.num_experts, strategy.expert_parallel),
        intermediate_size=_share(moe.intermediate_size, cut),
        shared_intermediate_size=_share(shared, strategy.tensor_parallel) if shared else 0,
    )


__all__ = ["micro_batch_size", "num_micro_batches", "sharded_recipe", "sharded_spec", "sharded_vocab_size"]
