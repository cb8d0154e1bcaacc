"""Seconds that no pipeline of a subtree is below, from seconds of its blocks: floors of them, or what they take.

Every rank runs its share of all micro-batches; it cannot begin before the first micro-batch has come through the ranks
before it, nor can they end before its last has come back through them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

from torchledger.planner.bound_rows import FILLED, SPLIT, TimeRow
from torchledger.planner.estimator import Costed, Stages
from torchledger.spec import Strategy


def least_pipeline_s(
    num_layers: Sequence[int],
    blocks: Sequence[tuple[float, float]],
    stages: int,
    number: int,
    rows: Sequence[TimeRow],
) -> tuple[float, float]:
    """Seconds of the micro-batches at the least, and how much of them is bubble.

    Blocks are (seconds without weight gradients, seconds of those); `num_layers` how many of each the model has.
    """
    split = [seconds for seconds, _ in blocks]
    whole = [seconds + weight for seconds, weight in blocks]
    mean = number * sum(map(mul, whole, num_layers)) / stages
    if stages == 1:
        return mean, 0.0
    least = math.inf
    for is_whole, ranks in rows:
        waited = whole if is_whole else split
        longest = mean
        for held, before in ranks:
            busy = number * sum(map(mul, whole, held))
            own = busy if is_whole else number * sum(map(mul, split, held))
            longest = max(longest, busy, own + sum(map(mul, waited, before)))
        least = min(least, longest)
    return least, least - mean


def busiest_s(
    costed: Costed, stages: Stages, blocks: Sequence[tuple[float, float]], number: int, strategy: Strategy
) -> float:
    """Seconds of the rank that is busy longest, with what it waits for.

    Blocks are (seconds without weight gradients, seconds of those).
    """
    seconds = {id(piece.block): each for piece, each in zip(costed.pieces, blocks, strict=True)}
    chunks = {}
    for stage in stages:
        if id(stage) not in chunks:
            first = sum(seconds[id(block)][0] * n for block, _, n in stage[0])
            first_weight = sum(seconds[id(block)][1] * n for block, _, n in stage[0])
            own = sum(seconds[id(block)][0] * n for chunk in stage for block, _, n in chunk)
            weight = sum(seconds[id(block)][1] * n for chunk in stage for block, _, n in chunk)
            chunks[id(stage)] = (first, first_weight, own, weight)
    is_filled, is_split = strategy.schedule in FILLED, strategy.schedule in SPLIT
    longest = before = 0.0
    for stage in stages:
        first, first_weight, own, weight = chunks[id(stage)]
        waits = number * (own if is_split else own + weight) + before
        longest = max(longest, waits, number * (own + weight))
        if is_filled:
            before += first if is_split else first + first_weight
    # DualPipe's ranks have each micro-batch in one of their two chunks only
    return longest / 2 if strategy.schedule == "dualpipe" and len(stages) > 1 else longest
