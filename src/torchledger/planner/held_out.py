"""What a calibration is worth before it is used: each measured row predicted from the others alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from torchledger.planner.algebra import Matrix, dot, inverse

__all__ = ["is_clearly_worse", "left_out", "mean_error"]


def left_out(together: Sequence[Sequence[float]], differences: Sequence[float]) -> list[float]:
    """By row, how far it lies from what all the others lead to expect.

    For values of mean 0 and covariance K that is [K⁻¹y]ᵢ / [K⁻¹]ᵢᵢ, without fitting once a row (Rasmussen and Williams,
    Gaussian Processes for Machine Learning, 2006, equation 5.12).

    Args:
        together: K, the rows' covariance, noise included.
        differences: y, of each row.

    >>> left_out([[2.0, 1.0], [1.0, 2.0]], [1.0, 0.5])  # half of a neighbour is expected
    [0.75, 0.0]
    """
    precision: Matrix = inverse(together)
    return [dot(row, differences) / row[i] for i, row in enumerate(precision)]


def mean_error(rests: Sequence[float]) -> float:
    """Mean absolute relative error of predictions that lie `rests` below the measured, in the logarithm."""
    return fmean(map(_error, rests))


def is_clearly_worse(rests: Sequence[float], than: Sequence[float]) -> bool:
    """Whether errors are larger row by row, by more than one standard error of the mean of what they differ by.

    With a handful of rows the mean error is uncertain; the rule of one standard error (Breiman et al., Classification
    and Regression Trees, 1984, section 3.4.3) asks for a difference that is more than that.

    >>> is_clearly_worse([0.2, 0.2, 0.3], [0.1, 0.1, 0.1]), is_clearly_worse([0.4, 0.0, 0.0], [0.1, 0.1, 0.1])
    (True, False)
    """
    more = [_error(a) - _error(b) for a, b in zip(rests, than, strict=True)]
    return fmean(more) > stdev(more) / math.sqrt(len(more))


def _error(rest: float) -> float:
    return abs(math.exp(-rest) - 1)
