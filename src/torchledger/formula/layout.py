"""Where a tensor's elements lie in memory: just enough to tell when dimensions can be merged without a copy.

A copy is a new storage, and which storage an operation keeps decides what a step's activations weigh. Sizes and strides
may be symbols: only equality is asked of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torchledger.ledger import Amount

Sizes: TypeAlias = tuple[Amount, ...]


def contiguous(shape: Sequence[Amount]) -> Sizes:
    """Strides of a tensor whose last dimension is dense, and each one before it steps over all that follow.

    >>> contiguous((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[Amount] = []
    step: Amount = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def merged(shape: Sizes, strides: Sizes, groups: Sequence[int]) -> tuple[Sizes, Sizes | None]:
    """Shape and strides after merging runs of neighbouring dimensions; no strides where that takes a copy.

    Two neighbours merge where the first one's stride is the second one's times its size; dimensions of size 1 merge
    with anything (`at::detail::computeStride`).

    Args:
        shape: sizes.
        strides: in elements.
        groups: how many dimensions go into each dimension of the result, in order.

    >>> merged((2, 3, 4), (12, 4, 1), (2, 1))
    ((6, 4), (4, 1))
    >>> merged((2, 3, 4), (12, 1, 3), (1, 2))
    ((2, 12), None)
    """
    assert sum(groups) == len(shape), "every dimension is in one group"
    sizes: list[Amount] = []
    steps: list[Amount] = []
    is_view, start = True, 0
    for count in groups:
        size: Amount = 1
        step: Amount = None  # stride of the merged dimension so far, nothing while all were of size 1
        for index in reversed(range(start, start + count)):
            if shape[index] == 1:
                continue
            is_view = is_view and (step is None or strides[index] == step * size)
            step = strides[index] if step is None else step
            size = size * shape[index]
        sizes.append(size)
        steps.append(1 if step is None else step)
        start += count
    return tuple(sizes), tuple(steps) if is_view else None
