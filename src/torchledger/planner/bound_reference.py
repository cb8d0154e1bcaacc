"""Layouts and recipes whose blocks tell the floors of all others: even ones, so that their lines are straight.

What goes in whole pieces or rows takes a little more where they are not full. A line through two layouts whose last
ones differ would be too steep, and no bound.
"""

from __future__ import annotations

import math
from dataclasses import replace

from torchledger.spec import ModelSpec, Recipe, Strategy

__all__ = ["in_whole_pieces", "in_whole_rows", "reference"]


def in_whole_rows(spec: ModelSpec, recipe: Recipe) -> ModelSpec:
    """The model with a capacity of experts that is whole for one sequence: the rows of n are then not below n times it.

    >>> from torchledger.spec import AttentionSpec, MlpSpec, MoeSpec
    >>> tiny = ModelSpec("m", 100, 64, 2, 64, AttentionSpec(4), MlpSpec(64), moe=MoeSpec(6, 4, 8, capacity_factor=1.25))
    >>> 512 * 4 / 6 * in_whole_rows(tiny, Recipe(sequence_length=512)).moe.capacity_factor  # 426.67 with 1.25
    425.999...
    """
    if spec.moe is None or not spec.moe.capacity_factor:
        return spec
    share = recipe.sequence_length * spec.moe.experts_per_token / spec.moe.num_experts
    whole = max(0.5, math.floor(spec.moe.capacity_factor * share))  # half a row is one row, of two sequences as well
    return replace(spec, moe=replace(spec.moe, capacity_factor=whole * (1 - 1e-12) / share))


def in_whole_pieces(recipe: Recipe) -> tuple[Recipe, Recipe]:
    """Recipes whose reference layouts tell what a sequence takes at the least, seconds and bytes.

    A loss in pieces moves bytes once a piece, whatever its tokens, and holds one piece. So pieces are of a size that
    divides a sequence and is not below the recipe's: n sequences have at least so many of them, and hold no more than
    one does. Where the recipe's are larger than a sequence, two are one piece for seconds, and one is for bytes.

    >>> asked = [Recipe(sequence_length=512, loss_chunk=chunk) for chunk in (200, 256, 700)]
    >>> [[each.loss_chunk for each in in_whole_pieces(recipe)] for recipe in asked]
    [[256, 256], [256, 256], [1024, 512]]
    """
    chunk, length = recipe.loss_chunk, recipe.sequence_length
    if not chunk:
        return recipe, recipe
    even = next((each for each in range(chunk, length + 1) if length % each == 0), 2 * length)
    return replace(recipe, loss_chunk=even), replace(recipe, loss_chunk=min(even, length))


def reference(base: Strategy, ranks: int, size: int, *, sequence_parallel: bool) -> Strategy:
    """So many sequences on so many tensor parallel ranks, the rest as in `base`."""
    return Strategy(
        stack=base.stack,
        tensor_parallel=ranks,
        sequence_parallel=sequence_parallel and ranks > 1,
        context_parallel=base.context_parallel,
        vocab_parallel=base.vocab_parallel,
        expert_parallel=base.expert_parallel,
        expert_tensor_parallel=base.expert_tensor_parallel if ranks > 1 else 0,
        micro_batch_size=size,
    )
