"""What a calibration could have left at best, told by someone who knows every measured row.

Two questions about a group of rows, for where five of them bring less than is hoped for: how near could any constants
come to the rows, if they were fitted to these very rows; and how much would the best five rows have brought, if they
were chosen by what came out.

The first has a bound, not only a search. A step is the overhead times a sum of parts, each of which grows with one
constant (seconds) or with the inverse of one (a rate), and of the rest. With x the multiples of these over the default
ones, times that of the overhead, with h the parts' shares of the step and q predicted over measured seconds, the mean
absolute relative error is that of q·Σ_k h_k·x_k from 1: a problem of least absolute deviations, min Σ_i |b_i - (A·y)_i|
with y = x - 1 between low and high. For any z of which no element is beyond 1 or -1, bᵀz - Σ_k max(low_k·v_k,
high_k·v_k) with v = Aᵀz is no more than that minimum (duality of linear programs: Bloomfield and Steiger, Least
Absolute Deviations, 1983, section 1.3). Weighted least squares, repeated with the weights 1/|rest|, comes to such a z
by itself: the rests times their weights.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

from torchledger.planner.algebra import dot, solve
from torchledger.planner.calibration import BOUNDS, NOISE, SPREADS
from torchledger.planner.constants import Constants
from torchledger.planner.fitted import Predict, slopes
from torchledger.planner.held_out import mean_error

__all__ = ["Floor", "after_over_before", "choices", "least_error"]

#: What a step's parts are seconds of; it takes less with more of the other constants.
_SECONDS = frozenset({"host_s"})
#: How many spreads of the prior a constant may lie from its default that `calibrate` has no bounds for.
_FARTHEST = 3.0
#: Rests below this weigh no more, and how it gets there.
_NEAREST, _FIRST, _DECAY = 1e-4, 0.1, 0.9
_ROUNDS, _TURNS, _STILL, _RIDGE = 120, 4, 1e-9, 1e-12


class Floor(NamedTuple):
    """What no constants go below.

    Attributes:
        error: the mean absolute relative error that is left at least.
        rests: by row, predicted over measured seconds less 1, of the best that was found.
    """

    error: float
    rests: tuple[float, ...]

    @property
    def reached(self) -> float:
        """What the best that was found leaves: the least of all lies between the bound and this."""
        return sum(map(abs, self.rests)) / len(self.rests)


def least_error(predicts: Sequence[Predict], measured: Sequence[float], start: Constants) -> Floor:
    """The error that is left at least, whatever the constants, of the rows that they may be fitted to.

    Constants lie within the bounds of `calibrate`; what has none, within three spreads of its prior; each part may even
    have an overhead of its own. How much of a step goes with which constant is taken from the slopes at the default
    ones: where parts overlap, an approximation.

    Args:
        predicts: of every row, its seconds under given constants.
        measured: seconds of every row.
        start: the default constants.
    """
    names = [name for name in SPREADS if name != "overhead" and getattr(start, name) is not None]
    ratios = [predict(start) / t for predict, t in zip(predicts, measured, strict=True)]
    signs = [1.0 if name in _SECONDS else -1.0 for name in names]
    parts = [[s * g for s, g in zip(signs, row, strict=True)] for row in slopes(predicts, start, names)]
    table = [[q * h for h in (*row, 1 - sum(row))] for q, row in zip(ratios, parts, strict=True)]
    least, most = (each / start.overhead for each in BOUNDS["overhead"])
    ranges = [_multiples(name, getattr(start, name)) for name in names] + [(1.0, 1.0)]
    moves = [(low * least - 1, high * most - 1) for low, high in ranges]
    return _least_deviations([1 - q for q in ratios], table, moves)


def choices(num_rows: int, num_chosen: int, most: int) -> Iterator[tuple[int, ...]]:
    """Every choice of so many rows, or where there are more than `most`, so many drawn ones.

    >>> len(list(choices(6, 3, 100))), len(list(choices(60, 3, 100)))
    (20, 100)
    """
    if math.comb(num_rows, num_chosen) <= most:
        yield from combinations(range(num_rows), num_chosen)
        return
    draw = random.Random(0)
    for _ in range(most):
        yield tuple(draw.sample(range(num_rows), num_chosen))


def after_over_before(believed: Sequence[Sequence[float]], rests: Sequence[float], chosen: Sequence[int]) -> float:
    """The error of all other rows after these are measured, over that before; infinite where there was none before.

    Args:
        believed: the rows' covariance before anything is measured (`informative.believed`).
        rests: of every row, ln t - ln p under the default constants.
        chosen: the rows that are measured.
    """
    own = [[believed[i][j] + (NOISE**2 if i == j else 0.0) for j in chosen] for i in chosen]
    pull = solve(own, [rests[i] for i in chosen])
    others = [i for i in range(len(rests)) if i not in chosen]
    left = [rests[i] - dot([believed[i][j] for j in chosen], pull) for i in others]
    before = mean_error([rests[i] for i in others])
    return mean_error(left) / before if before else math.inf


def _multiples(name: str, default: float) -> tuple[float, float]:
    """Between which multiples of those under the default constants the seconds that go with a constant may lie."""
    far = math.exp(_FARTHEST * SPREADS[name])
    low, high = BOUNDS.get(name, (default / far, default * far))
    return (low / default, high / default) if name in _SECONDS else (default / high, default / low)


def _least_deviations(
    goal: Sequence[float], table: Sequence[Sequence[float]], ranges: Sequence[tuple[float, float]]
) -> Floor:
    """The least mean of |b - A·y|, from below and as it was reached.

    Args:
        goal: b, of every row.
        table: A, [row][part].
        ranges: of every y.
    """
    columns = list(zip(*table, strict=True))
    moves = [0.0] * len(ranges)
    rests, floor, near = list(goal), 0.0, _FIRST
    for _ in range(_ROUNDS):
        weights = [1 / max(abs(r), near) for r in rests]
        moves = _weighed_squares(columns, goal, weights, ranges, moves)
        rests = [b - dot(row, moves) for b, row in zip(goal, table, strict=True)]
        floor = max(floor, _bound(columns, goal, [w * r for w, r in zip(weights, rests, strict=True)], ranges))
        near = max(_NEAREST, near * _DECAY)
    return Floor(floor / len(goal), tuple(-r for r in rests))


def _bound(
    columns: Sequence[Sequence[float]],
    goal: Sequence[float],
    pulls: Sequence[float],
    ranges: Sequence[tuple[float, float]],
) -> float:
    """What the sum of absolute rests cannot go below, by any z; `pulls` is brought within -1 and 1 for it."""
    largest = max(1.0, *map(abs, pulls))
    z = [pull / largest for pull in pulls]
    gains = (dot(column, z) for column in columns)
    return dot(goal, z) - sum(max(low * v, high * v) for v, (low, high) in zip(gains, ranges, strict=True))


def _weighed_squares(
    columns: Sequence[Sequence[float]],
    goal: Sequence[float],
    weights: Sequence[float],
    ranges: Sequence[tuple[float, float]],
    first: Sequence[float],
) -> list[float]:
    """Moves within their ranges that make Σ w·rest² least.

    An active set: those that are not held go straight to their best until one meets its end, which is held from then
    on; where all are at their best, the held one that is drawn back inside most is let go (Nocedal and Wright,
    Numerical Optimization, 2nd edition, section 16.5).
    """
    weighed = [[w * a for w, a in zip(weights, column, strict=True)] for column in columns]
    matrix = [[dot(a, b) for b in columns] for a in weighed]
    side = [dot(column, goal) for column in weighed]
    moves = list(first)
    used = [k for k in range(len(ranges)) if matrix[k][k] > 0]  # a part of no row stays where it is
    held = {k for k in used if moves[k] in ranges[k]}
    for _ in range(_TURNS * len(ranges)):
        free = [k for k in used if k not in held]
        met = _go(matrix, side, ranges, free, moves)
        if met is not None:
            held.add(met)
            continue
        pulls = {k: side[k] - dot(matrix[k], moves) for k in held}
        inward = {k: pull if moves[k] == ranges[k][0] else -pull for k, pull in pulls.items()}
        most = max(inward, key=inward.__getitem__, default=None)
        if most is None or inward[most] <= _STILL * abs(side[most]):
            break
        held.remove(most)
    return moves


def _go(
    matrix: Sequence[Sequence[float]],
    side: Sequence[float],
    ranges: Sequence[tuple[float, float]],
    free: Sequence[int],
    moves: list[float],
) -> int | None:
    """Take the free moves to their best, or as far as the first of them that meets an end of its range: which."""
    own = [[matrix[i][j] * (1 + _RIDGE * (i == j)) for j in free] for i in free]
    rest = [side[i] - sum(matrix[i][j] * moves[j] for j in range(len(moves)) if j not in free) for i in free]
    best = dict(zip(free, solve(own, rest), strict=True))
    share, met = 1.0, None
    for k, at in best.items():
        end = min(ranges[k][1], max(ranges[k][0], at))
        if end != at and (part := (end - moves[k]) / (at - moves[k])) < share:
            share, met = part, k
    for k, at in best.items():
        moves[k] += share * (at - moves[k])
    if met is not None:
        moves[met] = ranges[met][0] if best[met] < ranges[met][0] else ranges[met][1]
    return met
