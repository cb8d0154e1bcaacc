"""In which order to contract three or more operands: FLOPs of a path, and the path with the fewest.

Counting is that of opt_einsum (Smith and Gray, JOSS 3(26), 2018, doi:10.21105/joss.00753): a pair costs the product of
all its sizes, twice that where it sums over something. Sums over an index that a single operand has are made before,
once on every path, and cost an add less than they have elements.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from torchledger.ops.pattern.errors import PatternError

#: Left and right operand by their places in the list; what comes of them goes to the list's end.
Pair: TypeAlias = tuple[int, int]

#: More operands than this are not searched: the search takes 3^n steps.
MOST_SEARCHED = 10


@dataclass(frozen=True, slots=True)
class Path:
    """Pairs in their order.

    Attributes:
        pairs: places in the list of operands, as in the paths of opt_einsum and NumPy.
        flops: multiplications and additions of all pairs, sums before them included.
        largest: elements of the largest result on the way.
    """

    pairs: tuple[Pair, ...]
    flops: int
    largest: int


def all_at_once(operands: Sequence[Sequence[str]], output: Sequence[str], sizes: Mapping[str, int]) -> int:
    """FLOPs of one loop over all indices: n - 1 multiplications each, and an addition where something is summed.

    >>> all_at_once(["ij", "jk", "kl"], "il", dict(i=2, j=3, k=4, l=5))  # 2·3·4·5 · (2 + 1)
    360
    """
    indices = {name for operand in operands for name in operand}
    return prod(sizes[name] for name in indices) * (len(operands) - 1 + (len(indices) > len(output)))


def left_to_right(operands: Sequence[Iterable[str]], output: Iterable[str], sizes: Mapping[str, int]) -> Path:
    """The path that torch takes where opt_einsum is not installed: the result so far with the next operand.

    >>> left_to_right(["ij", "jk", "kl"], "il", dict(i=2, j=3, k=4, l=5)).flops  # 2·2·3·4 + 2·2·4·5
    128
    """
    pairs = [(0, 1)] if len(operands) > 1 else []
    pairs.extend((length - 1, 0) for length in range(len(operands) - 1, 1, -1))
    return followed(pairs, operands, output, sizes)


def followed(
    pairs: Sequence[Pair], operands: Sequence[Iterable[str]], output: Iterable[str], sizes: Mapping[str, int]
) -> Path:
    """A path with its costs.

    Raises:
        PatternError: a pair is none of the list, or the path does not leave one operand.
    """
    rest = [frozenset(operand) for operand in operands]
    wanted = frozenset(output)
    flops, largest = 0, 0
    for pair in pairs:
        first, second = sorted(pair)
        if not 0 <= first < second < len(rest):
            raise PatternError(f"{pair} is no pair of {len(rest)} operands")
        right, left = rest.pop(second), rest.pop(first)
        needed = wanted.union(*rest)
        cost, result = pair_cost(left, right, needed, sizes)
        flops += cost
        largest = max(largest, prod(sizes[name] for name in result))
        rest.append(result)
    if len(rest) != 1:
        raise PatternError(f"the path leaves {len(rest)} operands; it must leave one")
    return Path(tuple(pairs), flops, largest)


def best(operands: Sequence[Iterable[str]], output: Iterable[str], sizes: Mapping[str, int]) -> Path:
    """The path with the fewest FLOPs of all there are, outer products included; of equals, the smallest intermediates.

    Dynamic programming over sets of operands: the best way to a set is the best split of it, since what a set leaves
    depends on the set alone.

    >>> best(["ij", "jk", "kl"], "il", dict(i=100, j=2, k=100, l=2)).pairs  # (jk·kl) first: 2·2·100·2 + 2·100·2·2
    ((1, 2), (0, 1))

    Raises:
        PatternError: more than `MOST_SEARCHED` operands.
    """
    given = [frozenset(operand) for operand in operands]
    if len(given) > MOST_SEARCHED:
        raise PatternError(f"paths of {len(given)} operands are not searched, of {MOST_SEARCHED} at most")
    search = _Search(given, frozenset(output), sizes)
    whole = (1 << len(given)) - 1
    # of a set: FLOPs, elements of its largest result, the half of it that has its lowest operand
    found: dict[int, tuple[int, int, int]] = {1 << place: (0, 0, 0) for place in range(len(given))}
    for mask in range(1, whole + 1):
        if mask not in found:
            found[mask] = min(search.splits(mask, found))
    return followed(_pairs(whole, found, len(given)), operands, output, sizes)


def pair_cost(
    left: frozenset[str], right: frozenset[str], needed: frozenset[str], sizes: Mapping[str, int]
) -> tuple[int, frozenset[str]]:
    """FLOPs of contracting two operands, and the indices of what comes of it.

    Args:
        left: its indices.
        right: its indices.
        needed: indices of the result and of all other operands.
        sizes: of the indices.
    """
    flops = 0
    kept = []
    for one, other in ((left, right), (right, left)):
        alone = one - other - needed
        if alone and prod(sizes[name] for name in alone) > 1:
            rest = prod(sizes[name] for name in one - alone)
            flops += rest * (prod(sizes[name] for name in alone) - 1)
        kept.append(one - alone)
    both = kept[0] | kept[1]
    sums = any(sizes[name] > 1 for name in both - needed)
    return flops + (2 if sums else 1) * prod(sizes[name] for name in both), both & needed


class _Search:
    """What sets of operands leave. A set is a number whose bits are its operands."""

    def __init__(self, given: Sequence[frozenset[str]], output: frozenset[str], sizes: Mapping[str, int]) -> None:
        self._sizes = sizes
        whole = (1 << len(given)) - 1
        inside = [self._union(given, mask) for mask in range(whole + 1)]
        self._needed = [output | inside[whole ^ mask] for mask in range(whole + 1)]
        self._indices = [
            inside[mask] if mask.bit_count() == 1 else inside[mask] & self._needed[mask] for mask in range(whole + 1)
        ]

    def splits(self, mask: int, found: Mapping[int, tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
        """Each way to cut a set in two: FLOPs, elements of the largest result, the half with the lowest operand."""
        rest = mask ^ (mask & -mask)
        part = rest
        while part:
            other = mask ^ part
            cost, result = pair_cost(self._indices[other], self._indices[part], self._needed[mask], self._sizes)
            one, two = found[other], found[part]
            elements = prod(self._sizes[name] for name in result)
            yield one[0] + two[0] + cost, max(one[1], two[1], elements), other
            part = (part - 1) & rest

    @staticmethod
    def _union(given: Sequence[frozenset[str]], mask: int) -> frozenset[str]:
        return frozenset(name for place, each in enumerate(given) if mask >> place & 1 for name in each)


def _pairs(whole: int, found: Mapping[int, tuple[int, int, int]], count: int) -> list[Pair]:
    """The tree of splits as places in a list that grows at its end."""
    present = [1 << place for place in range(count)]
    pairs: list[Pair] = []

    def contract(mask: int) -> None:
        half = found[mask][2]
        if not half:
            return
        contract(half)
        contract(mask ^ half)
        first, second = sorted((present.index(half), present.index(mask ^ half)))
        pairs.append((first, second))
        del present[second], present[first]
        present.append(mask)

    contract(whole)
    return pairs
