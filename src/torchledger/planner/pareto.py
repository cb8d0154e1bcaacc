"""Pareto fronts: what no other choice beats in both of two amounts, less being better in each."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Front(Generic[T]):
    """A front that grows: seconds against bytes, or days against money.

    An item stays while no other has at most its first and at most its second amount and less of one of them. Of items
    with equal amounts the one with the smallest rank stays, so that the order of arrival does not matter.

    >>> front = Front[str]()
    >>> for first, second, item in ((3, 1, "slow and small"), (1, 5, "fast"), (2, 6, "beaten"), (2, 2, "between")):
    ...     front.add(first, second, (), item)
    >>> front.items
    ('fast', 'between', 'slow and small')
    """

    __slots__ = ("_firsts", "_items", "_ranks", "_seconds")

    def __init__(self) -> None:
        self._firsts: list[float] = []
        self._seconds: list[float] = []
        self._ranks: list[Any] = []
        self._items: list[T] = []

    @property
    def items(self) -> tuple[T, ...]:
        """What is on the front, least of the first amount first."""
        return tuple(self._items)

    def beats(self, first: float, second: float) -> bool:
        """Whether something on the front has no more of either and less of one.

        >>> front = Front[str]()
        >>> front.add(1.0, 5.0, (), "a")
        >>> front.beats(1.0, 5.0), front.beats(1.0, 5.5), front.beats(0.5, 9.0)
        (False, True, False)
        """
        place = bisect_right(self._firsts, first) - 1
        if place < 0:
            return False
        least = self._seconds[place]
        return least < second or (least == second and self._firsts[place] < first)

    def add(self, first: float, second: float, rank: Any, item: T) -> None:
        """Put an item on the front if it belongs there, and take off what it beats."""
        if self.beats(first, second):
            return
        start = bisect_left(self._firsts, first)
        if start < len(self._firsts) and self._firsts[start] == first and self._seconds[start] == second:
            if self._ranks[start] <= rank:
                return
            self._ranks[start], self._items[start] = rank, item
            return
        end = start
        while end < len(self._firsts) and self._seconds[end] >= second:
            end += 1
        self._firsts[start:end] = [first]
        self._seconds[start:end] = [second]
        self._ranks[start:end] = [rank]
        self._items[start:end] = [item]


def pareto(items: Iterable[T], amounts: Callable[[T], tuple[float, float]]) -> tuple[T, ...]:
    """The items that no other beats in both amounts, least of the first amount first; the earlier of two equal ones.

    >>> pareto([(1, 9), (2, 9), (3, 4), (3, 5)], lambda each: each)
    ((1, 9), (3, 4))
    """
    front = Front[T]()
    for number, item in enumerate(items):
        front.add(*amounts(item), number, item)
    return front.items
