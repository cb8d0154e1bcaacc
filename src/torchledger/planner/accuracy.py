"""`Accuracy`: how far predicted seconds lie from measured ones, over many rows."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accuracy:
    """Errors (predicted - measured) / measured over rows; shares, not per cent.

    Attributes:
        num_rows: how many.
        mean, median, ninetieth: of the absolute errors (the 90th percentile by nearest rank).
        bias: mean of the signed errors; below 0 is too fast.
        worst: the largest in absolute value, with its sign.
        worst_name: whose it is.
    """

    num_rows: int
    mean: float
    median: float
    ninetieth: float
    bias: float
    worst: float
    worst_name: str

    @classmethod
    def of(cls, pairs: Iterable[tuple[str, float, float]]) -> Accuracy:
        """From (name, predicted, measured).

        >>> found = Accuracy.of([("a", 1.1, 1.0), ("b", 0.8, 1.0), ("c", 1.0, 1.0)])
        >>> round(found.mean, 3), round(found.median, 3), round(found.bias, 3), found.worst_name
        (0.1, 0.1, -0.033, 'b')

        Raises:
            ValueError: there are none.
        """
        errors = [(predicted / measured - 1, name) for name, predicted, measured in pairs]
        if not errors:
            raise ValueError("no rows to compare")
        sizes = sorted(abs(error) for error, _ in errors)
        worst, name = max(errors, key=lambda each: abs(each[0]))
        return cls(
            num_rows=len(errors),
            mean=math.fsum(sizes) / len(sizes),
            median=percentile(sizes, 0.5),
            ninetieth=percentile(sizes, 0.9),
            bias=math.fsum(error for error, _ in errors) / len(errors),
            worst=worst,
            worst_name=name,
        )


def percentile(ordered: list[float], share: float) -> float:
    """The value that so large a share of the ordered ones does not exceed, by nearest rank.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.5), percentile([1.0, 2.0, 3.0], 0.9)
    (2.0, 3.0)
    """
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
