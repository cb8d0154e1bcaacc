"""`Coverage`: which share of a step's operations was counted by a rule, and the most that the others could cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchledger.ledger.line import Line
from torchledger.ledger.work import Amount


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation without a rule.

    Attributes:
        op: its name.
        times: how often it runs.
        at_most_flops: the most that all its runs could cost in FLOPs; `None` where nobody can say.
        modules: paths of the modules that run it.
    """

    op: str
    times: Amount
    at_most_flops: Amount
    modules: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Coverage:
    """How many operations of a step were counted.

    Attributes:
        num_counted: operations counted by a rule.
        num_free: operations known to do no work (views, memory that is not written).
        unknown: operations without a rule, by name.
    """

    num_counted: int
    num_free: int
    unknown: tuple[UnknownOperation, ...] = ()

    @property
    def num_unknown(self) -> int:
        """Operations without a rule."""
        return sum(each.times for each in self.unknown)

    @property
    def share(self) -> float:
        """Share of operations whose cost is known, those that are free included; 1 for a step without operations.

        >>> Coverage(6, 2, (UnknownOperation("aten.odd.default", 2, None, ("",)),)).share
        0.8
        """
        known = self.num_counted + self.num_free
        return known / (known + self.num_unknown) if known + self.num_unknown else 1.0

    @property
    def at_most_flops(self) -> Amount:
        """The most that all unknown operations could cost in FLOPs; `None` where that of one is not known."""
        bounds = [each.at_most_flops for each in self.unknown]
        return None if None in bounds else sum(bounds)


def unknown_operations(lines: Iterable[Line]) -> tuple[UnknownOperation, ...]:
    """The operations without a rule among some lines, by name, the most frequent first."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        if line.kind == "unknown" or line.work.flops_full is None:
            found.setdefault(line.op, []).append(line)
    operations = [
        UnknownOperation(
            op,
            sum(line.times for line in group),
            _bound(group),
            tuple(dict.fromkeys(line.module for line in group)),
        )
        for op, group in found.items()
    ]
    return tuple(sorted(operations, key=lambda each: -each.times))


def _bound(lines: Iterable[Line]) -> Amount:
    total: Amount = 0
    for line in lines:
        most = dict(line.shape).get("at_most_flops")
        if most is None:
            return None
        total += most * line.times
    return total
