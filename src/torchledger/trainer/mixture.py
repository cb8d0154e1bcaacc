"""Which part of a mixture each sample comes from: by weight, evenly spread, a pure function of the sample's number.

Two parts with shares p and 1 - p: of the first s samples, floor(s·p + 1/2) are the first part's, so that each has its
share within half a sample at every s, and over any stretch within one. (These are the balanced words of Morse and
Hedlund 1940; of three parts with different shares there is one balanced order only, 4:2:1, so that no order can promise
as much.) More parts are split in two, and each half again: a tree, in which an error is handed down in proportion.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from jaxtyping import Int64

__all__ = ["Mixture"]

SHARE_BITS = 48  # shares are multiples of 2**-48: after 10**12 samples the count is off by less than 0.004
LONGEST_STRETCH = 1 << 13  # so many times a share, and the rest of a product, stay below 2**63


@dataclass(frozen=True, slots=True)
class _Split:
    """Two parts or groups of parts; `share` is that of the left one, in 2**-48."""

    left: "_Node"
    right: "_Node"
    share: int


_Node: TypeAlias = _Split | int  # a leaf is the number of a part


class Mixture:
    """Parts drawn from by weight.

    >>> mixture = Mixture([2, 1])
    >>> mixture.draw(0, 6)[0].tolist()
    [0, 1, 0, 0, 1, 0]

    Args:
        weights: of the parts, in any unit, all positive.

    Attributes:
        shares: the weights, as shares of one.
        largest_deviation: a bound, in samples, on how far a part's count from the beginning is ever from its share:
            1/2 of two parts, at most 1 of four, below 2 of any number. Over a stretch in the middle it is twice that.
    """

    def __init__(self, weights: Sequence[float]) -> None:
        assert weights
        assert all(weight > 0 for weight in weights)
        total = float(sum(weights))
        self.shares = tuple(weight / total for weight in weights)
        trees = (_by_number(self.shares), _by_weight(self.shares))
        self.largest_deviation, _, self._root = min(
            (_deviation(tree, self.shares), i, _rounded(tree, self.shares)) for i, tree in enumerate(trees)
        )

    def draw(self, first: int, count: int) -> tuple[Int64[np.ndarray, " samples"], Int64[np.ndarray, " samples"]]:
        """Where each of samples `first` .. `first + count - 1` comes from.

        Returns:
            The number of its part, and how many samples of the whole stream came from that part before it.
        """
        assert first >= 0
        stretches = [
            _draw(self._root, first + done, min(count - done, LONGEST_STRETCH))
            for done in range(0, max(count, 1), LONGEST_STRETCH)
        ]
        parts, places = zip(*stretches, strict=True)
        return np.concatenate(parts), np.concatenate(places)


_Tree: TypeAlias = tuple["_Tree", "_Tree"] | int


def _by_number(shares: Sequence[float]) -> _Tree:
    """Halves with equally many parts: for up to four, no part is ever a whole sample off."""

    def half(parts: list[int]) -> _Tree:
        middle = (len(parts) + 1) // 2
        return parts[0] if len(parts) == 1 else (half(parts[:middle]), half(parts[middle:]))

    return half(sorted(range(len(shares)), key=lambda part: -shares[part]))


def _by_weight(shares: Sequence[float]) -> _Tree:
    """The two lightest put together until one is left (Huffman 1952): the deepest have the least to be off by."""
    nodes: list[tuple[float, int, _Tree]] = [(share, part, part) for part, share in enumerate(shares)]
    for number in range(len(shares), 2 * len(shares) - 1):
        nodes.sort(key=lambda node: node[:2], reverse=True)
        (light, _, right), (heavier, _, left) = nodes.pop(), nodes.pop()
        nodes.append((light + heavier, number, (left, right)))
    return nodes[0][2]


def _weight(tree: _Tree, shares: Sequence[float]) -> float:
    return shares[tree] if isinstance(tree, int) else sum(_weight(half, shares) for half in tree)


def _deviation(tree: _Tree, shares: Sequence[float], above: float = 0.0) -> float:
    """The largest deviation of any leaf, given that of the node: a half gets its part of it, and half a sample more."""
    if isinstance(tree, int):
        return above
    whole = _weight(tree, shares)
    return max(_deviation(half, shares, above * _weight(half, shares) / whole + 0.5) for half in tree)


def _rounded(tree: _Tree, shares: Sequence[float]) -> _Node:
    if isinstance(tree, int):
        return tree
    left, right = tree
    share = round(_weight(left, shares) / _weight(tree, shares) * 2**SHARE_BITS)
    return _Split(_rounded(left, shares), _rounded(right, shares), min(max(share, 1), 2**SHARE_BITS - 1))


def _draw(node: _Node, first: int, count: int) -> tuple[Int64[np.ndarray, " samples"], Int64[np.ndarray, " samples"]]:
    """What `Mixture.draw` says, of one node's own stream and at most `LONGEST_STRETCH` samples."""
    if isinstance(node, int):
        return np.full(count, node, np.int64), np.arange(first, first + count, dtype=np.int64)
    # floor(s·share + 1/2) for each s: exactly, in plain integers for the first, and within 64 bits for what follows
    before, rest = divmod(first * node.share + (1 << SHARE_BITS - 1), 1 << SHARE_BITS)
    follows = (np.arange(count + 1, dtype=np.int64) * node.share + rest) >> SHARE_BITS
    is_left = follows[1:] > follows[:-1]
    num_left = int(follows[-1])
    parts, places = np.empty(count, np.int64), np.empty(count, np.int64)
    for half, chosen, start, number in (
        (node.left, is_left, before, num_left),
        (node.right, ~is_left, first - before, count - num_left),
    ):
        parts[chosen], places[chosen] = _draw(half, start, number)
    return parts, places
