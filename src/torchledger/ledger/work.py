"""`Work`: what one piece of computing costs, as a small value with arithmetic.

A field that nobody knows is `None`, and stays `None` through every sum: unknown is not zero.

    >>> Work(flops_full=6) + Work(flops_full=4)
    Work(flops_full=10)
    >>> (Work(flops_full=6) + Work(flops_full=None)).flops_full is None
    True
    >>> Work(flops_full=6) * 3
    Work(flops_full=18)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any

# An amount is an int or a float in SI base units. A symbol of a computer algebra system may stand in its place
# (`count --symbolic`), which Python's types cannot say without importing that system.
Amount = Any


@dataclass(frozen=True, slots=True, repr=False)
class Work:
    """What one piece of computing costs. Amounts of operations and bytes; `None` is unknown, never zero.

    Attributes:
        flops_full: floating point operations, 2 a multiply-add, attention as the full square.
        flops_exact: the same with masks, windows and causality counted pair by pair.
        flops_executed: what the kernel at hand really runs (a flash backward has a fifth matmul).
        transcendentals: exp, log, erf, tanh, sqrt, division-like operations, kept apart.
        bytes_read: bytes of operands read once.
        bytes_written: bytes of results written once.
        bytes_kept: bytes of *new* storage kept alive for the backward pass.
        bytes_sent: bytes this rank sends to other ranks.
    """

    flops_full: Amount = 0
    flops_exact: Amount = 0
    flops_executed: Amount = 0
    transcendentals: Amount = 0
    bytes_read: Amount = 0
    bytes_written: Amount = 0
    bytes_kept: Amount = 0
    bytes_sent: Amount = 0

    @classmethod
    def of_flops(cls, flops: Amount, **other: Amount) -> Work:
        """Work whose full, exact and executed FLOPs are the same number (no mask, no recomputation inside).

        >>> Work.of_flops(12).flops_exact
        12
        """
        return cls(flops_full=flops, flops_exact=flops, flops_executed=flops, **other)

    def __add__(self, other: Work) -> Work:
        return self._pairwise(other, lambda a, b: a + b)

    def __sub__(self, other: Work) -> Work:
        return self._pairwise(other, lambda a, b: a - b)

    def __mul__(self, times: Amount) -> Work:
        return Work(*(None if a is None else a * times for a in self.amounts()))

    __rmul__ = __mul__

    def amounts(self) -> tuple[Amount, ...]:
        """The amounts in the order of `WORK_FIELDS`."""
        return tuple(getattr(self, name) for name in WORK_FIELDS)

    @property
    def unknown_fields(self) -> tuple[str, ...]:
        """Names of the fields that are unknown.

        >>> Work(bytes_read=None).unknown_fields
        ('bytes_read',)
        """
        return tuple(name for name in WORK_FIELDS if getattr(self, name) is None)

    @property
    def is_zero(self) -> bool:
        """Whether every field is known and zero."""
        return all(a is not None and a == 0 for a in self.amounts())

    @property
    def bytes_moved(self) -> Amount:
        """Bytes read plus bytes written, or `None` where one of them is unknown."""
        return None if self.bytes_read is None or self.bytes_written is None else self.bytes_read + self.bytes_written

    def _pairwise(self, other: Work, operation: Callable[[Amount, Amount], Amount]) -> Work:
        if not isinstance(other, Work):
            return NotImplemented
        pairs = zip(self.amounts(), other.amounts(), strict=True)
        return Work(*(None if a is None or b is None else operation(a, b) for a, b in pairs))

    def __repr__(self) -> str:
        told = [f"{name}={getattr(self, name)!r}" for name in WORK_FIELDS if not _is_plain_zero(getattr(self, name))]
        return f"Work({', '.join(told)})"


WORK_FIELDS: tuple[str, ...] = tuple(field.name for field in fields(Work))
NO_WORK = Work()


def total(works: Iterable[Work]) -> Work:
    """The sum of many; the empty sum is `Work()`.

    >>> total([Work(bytes_read=1), Work(bytes_read=2)])
    Work(bytes_read=3)
    """
    result = NO_WORK
    for work in works:
        result = result + work
    return result


def _is_plain_zero(amount: Amount) -> bool:
    return isinstance(amount, (int, float)) and amount == 0
