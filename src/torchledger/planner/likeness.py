"""How alike two questions are: what a measured step tells of one that it was not measured for.

What the constants leave over is not noise: steps of nearly the same layout miss by nearly the same share, because the
same unmodelled cause is in both. So the rest of a calibration is taken as a Gaussian process over the features below
(Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, equations 2.22 to 2.24; kriging in geology).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from torchledger.spec import ModelSpec, Recipe, Strategy

#: A question as a point: features on scales on which a distance of 1 is "somewhat different".
Place: TypeAlias = tuple[float, ...]

#: Features further apart than this tell little of each other.
LENGTH = 1.5


#: How many features a place has; a file of an earlier version may have others.
NUM_FEATURES = 10


def place(spec: ModelSpec, recipe: Recipe, strategy: Strategy) -> Place:
    """Where a question stands among others: sizes on logarithmic scales, kinds as 0 or 1.

    Widths and tensor parallel shares shape the products, so they count in full; what only repeats a layer's work
    (depth, pipeline and data parallel ranks) counts half.

    >>> from torchledger.spec import load
    >>> a = place(load("gpt2"), Recipe(), Strategy())
    >>> b = place(load("gpt2"), Recipe(), Strategy(data_parallel=8))
    >>> round(likeness(a, a), 2), round(likeness(a, b), 2)
    (1.0, 0.62)
    """
    ranks = strategy.num_ranks
    return (
        math.log(spec.hidden_size),
        0.5 * math.log(spec.num_layers),
        0.7 * math.log(recipe.sequence_length),
        math.log(strategy.tensor_parallel),
        0.5 * math.log(strategy.pipeline_parallel),
        0.5 * math.log(strategy.data_parallel),
        math.log(strategy.micro_batch_size or max(1, recipe.micro_batch_size // strategy.data_parallel)),
        0.5 * math.log(ranks),
        float(recipe.recompute == "full"),
        0.7 * strategy.shard_level,
    )


def likeness(a: Sequence[float], b: Sequence[float]) -> float:
    """1 for the same question, towards 0 for questions that have nothing to do with each other: exp(-d²/2ℓ²)."""
    squared = sum((x - y) ** 2 for x, y in zip(a, b, strict=True))
    return math.exp(-squared / (2 * LENGTH**2))
