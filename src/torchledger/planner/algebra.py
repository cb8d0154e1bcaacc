"""Small symmetric matrices and one quantile: what a fit to a handful of rows needs, without numpy."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist
from typing import TypeAlias

Matrix: TypeAlias = tuple[tuple[float, ...], ...]


def solve(matrix: Sequence[Sequence[float]], side: Sequence[float]) -> list[float]:
    """X of A·x = b for a symmetric positive definite A, by Gaussian elimination (no pivoting is needed then)."""
    size = len(side)
    rows = [[*row, b] for row, b in zip(matrix, side, strict=True)]
    for i in range(size):
        for j in range(i + 1, size):
            factor = rows[j][i] / rows[i][i]
            rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    x = [0.0] * size
    for i in reversed(range(size)):
        x[i] = (rows[i][size] - sum(rows[i][j] * x[j] for j in range(i + 1, size))) / rows[i][i]
    return x


def inverse(matrix: Sequence[Sequence[float]]) -> Matrix:
    """The inverse of a symmetric positive definite matrix, by Gauss and Jordan's elimination of [A I] (n³ products).

    >>> inverse([[2.0, 0.0], [0.0, 4.0]])
    ((0.5, 0.0), (0.0, 0.25))
    """
    size = len(matrix)
    rows = [[*row, *(float(i == j) for j in range(size))] for i, row in enumerate(matrix)]
    for i in range(size):
        pivot = rows[i][i]
        rows[i] = [each / pivot for each in rows[i]]
        for j in range(size):
            if j != i and (factor := rows[j][i]):
                rows[j] = [a - factor * b for a, b in zip(rows[j], rows[i], strict=True)]
    return tuple(tuple(row[size:]) for row in rows)


def quadratic(matrix: Sequence[Sequence[float]], x: Sequence[float]) -> float:
    """The form xᵀMx."""
    return sum(a * b * v for a, row in zip(x, matrix, strict=True) for b, v in zip(x, row, strict=True))


def student(p: float, degrees: float) -> float:
    """Quantile of Student's t (Cornish-Fisher, Abramowitz and Stegun 26.7.5).

    >>> round(student(0.95, 10), 2), round(student(0.95, 1e9), 3)
    (1.81, 1.645)
    """
    z, v = NormalDist().inv_cdf(p), degrees
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / v + second / v**2 + third / v**3


def times(matrix: Sequence[Sequence[float]], x: Sequence[float]) -> list[float]:
    """The product Mx."""
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in matrix]


def dot(a: Sequence[float], b: Sequence[float]) -> float:
    """The inner product."""
    return sum(x * y for x, y in zip(a, b, strict=True))
