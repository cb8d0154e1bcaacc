"""`Group`: which ranks of a group of ranks share an island, and how evenly.

A group is `size` ranks that stand `stride` apart. All groups of a kind lie side by side: group j of stride s has the
ranks j·size·s + i + s·(0, 1, ... size - 1) for every i below s. A step waits for the worst of them, which is described.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import gcd


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks over domains (islands, or pods of them) of equal size.

    Attributes:
        size: ranks.
        num_domains: domains that the group of the most domains touches.
        least: the fewest members that any of these groups has in a domain that it touches.
        most: the most members.
    """

    size: int
    num_domains: int
    least: int
    most: int

    @property
    def per_domain(self) -> float:
        """Members in a domain, on average."""
        return self.size / self.num_domains


@cache
def group_over(size: int, stride: int, domain: int, num_ranks: int) -> Group:
    """A group of `size` ranks, `stride` apart, over domains of `domain` ranks.

    Args:
        size: ranks of a group.
        stride: between the numbers of two neighbours in it.
        domain: ranks of a domain.
        num_ranks: of the cluster, which says how many such groups there are.

    >>> group_over(8, 1, 8, 64)  # tensor parallel 8 on islands of 8
    Group(size=8, num_domains=1, least=8, most=8)
    >>> group_over(16, 4, 8, 64)  # data parallel 16 of tensor parallel 4: two on each of 8 islands
    Group(size=16, num_domains=8, least=2, most=2)
    >>> group_over(10, 1, 8, 40)  # the first has 8 and 2; the second 6 and 4
    Group(size=10, num_domains=2, least=2, most=8)
    """
    assert min(size, stride, domain) >= 1, (size, stride, domain)
    assert size * stride <= num_ranks, f"{size} ranks, {stride} apart, on {num_ranks}: the caller checks that they fit"
    if size == 1:
        return Group(1, 1, 1, 1)
    if stride >= domain:
        return Group(size, size, 1, 1)
    found = [_placed(start, size, stride, domain) for start in _starts(size, stride, domain, num_ranks)]
    return Group(
        size,
        max(domains for domains, _, _ in found),
        min(least for _, least, _ in found),
        max(most for _, _, most in found),
    )


def _starts(size: int, stride: int, domain: int, num_ranks: int) -> set[int]:
    """Where in its domain the first rank of a group stands, for all groups."""
    span = size * stride
    blocks = min(num_ranks // span, domain // gcd(span, domain))
    # where the stride divides the domain, groups of one block fall alike
    first = 1 if domain % stride == 0 else stride
    return {(block * span + i) % domain for block in range(blocks) for i in range(first)}


def _placed(start: int, size: int, stride: int, domain: int) -> tuple[int, int, int]:
    """Domains, fewest and most members in one, of the group whose first rank stands at `start` of its domain."""
    last = start + (size - 1) * stride
    domains = last // domain + 1
    if domains == 1:
        return 1, size, size
    first_has = -(-(domain - start) // stride)
    last_has = last % domain // stride + 1
    inner = [] if domains == 2 else [domain // stride, -(-domain // stride)]
    counts = [first_has, last_has, *inner]
    return domains, min(counts), max(counts)
