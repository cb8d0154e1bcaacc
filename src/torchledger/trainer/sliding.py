"""The last values of a quantity, kept in order, so that their median costs a step next to nothing."""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable

__all__ = ["Sliding", "middle_of"]


class Sliding:
    """The last `length` numbers that were added.

    >>> window = Sliding(3, [5.0, 1.0, 2.0])
    >>> window.median
    2.0
    >>> window.add(9.0)
    >>> window.ordered, window.median
    ([1.0, 2.0, 9.0], 2.0)

    Args:
        length: how many stay.
        values: the first ones, oldest first.

    Attributes:
        ordered: they, the least first.
    """

    def __init__(self, length: int, values: Iterable[float] = ()) -> None:
        assert length >= 1
        self._length = length
        self._values: deque[float] = deque()
        self.ordered: list[float] = []
        for value in values:
            self.add(value)

    def __len__(self) -> int:
        return len(self.ordered)

    @property
    def median(self) -> float | None:
        """The middle one, or the mean of the two in the middle; nothing where there are none."""
        return middle_of(self.ordered) if self.ordered else None

    def add(self, value: float) -> None:
        """Add a number, which is one (no order holds what is none), and let the oldest go where there are too many."""
        if len(self._values) == self._length:
            del self.ordered[bisect_left(self.ordered, self._values.popleft())]
        self._values.append(value)
        insort(self.ordered, value)


def middle_of(ordered: list[float]) -> float:
    """The median of numbers in order, as `statistics.median` has it."""
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
