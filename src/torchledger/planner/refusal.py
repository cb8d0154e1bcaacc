"""`Refusal`: a rule that a layout breaks, why, and what would keep it; and what rules read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torchledger.machine import Cluster
from torchledger.planner.stack import Stack
from torchledger.spec import ModelSpec, Recipe, Strategy


@dataclass(frozen=True, slots=True)
class Refusal:
    """A rule that a layout breaks.

    Attributes:
        reason: the rule and the numbers that break it.
        remedy: what would keep it.
        fields: the fields of `Strategy` (and `recompute`, `precision`) that the rule reads: every layout that shares
            their values breaks it too.
    """

    reason: str
    remedy: str
    fields: frozenset[str]

    @property
    def text(self) -> str:
        """Reason and remedy as one line."""
        return f"{self.reason}; {self.remedy}"


class Question(NamedTuple):
    """What rules read."""

    spec: ModelSpec
    recipe: Recipe
    strategy: Strategy
    cluster: Cluster
    stack: Stack


def nearest(size: int, asked: int, count: int = 3) -> str:
    """Divisors of a size that are nearest to an asked one, in words.

    >>> nearest(40, 16), nearest(7, 8), nearest(64, 3)
    ('8, 10 and 20', '1 and 7', '1, 2 and 4')
    """
    divisors = [each for each in range(1, size + 1) if size % each == 0] if size < 1 << 20 else [1, 2, 4, 8]
    found = sorted(sorted(divisors, key=lambda each: (abs(each - asked), each))[:count])
    if len(found) == 1:
        return str(found[0])
    return f"{', '.join(str(each) for each in found[:-1])} and {found[-1]}"


__all__ = ["Question", "Refusal", "nearest"]
