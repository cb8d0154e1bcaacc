"""`calibrate`: the few free constants fitted to a handful of measured steps, and the interval that is left.

The constants c are fitted on logarithmic scales: rows i of measured seconds t_i, predicted p_i(c), and a prior, the
default constants c_0 with the spread s that they have between clusters. The maximum of the posterior minimises

    Σ_i (ln p_i(c) - ln t_i)² / σ² + Σ_k (ln c_k - ln c_0k)² / s_k²

by Gauss and Newton's method (Gelman et al., Bayesian Data Analysis, 3rd edition, section 13.3), so that one row moves
what it can tell and leaves the rest, and twenty rows outweigh the prior. σ is estimated from what is left over, with a
prior worth a few rows. A prediction afterwards has the variance σ² + gᵀVg, where V is the posterior's covariance and g
the gradient of ln p.

Where it is known which question each row measured (`likeness.py`), the rows' errors are not taken as independent: their
covariance is Σ = τ²K + σ²I with K the likeness of the questions, which takes the place of σ² above, and a prediction
moves by kᵀΣ⁻¹r, what rows like it have left over (universal kriging; Rasmussen and Williams, 2006, section 2.7).

Five rows that are predicted well already are fitted to their noise. So each row is also predicted from the others
alone, and where that is clearly worse than the default constants were, these are kept (`held_out.py`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, NamedTuple

from torchledger.planner.algebra import Matrix, dot, inverse, quadratic, solve, times
from torchledger.planner.constants import Constants
from torchledger.planner.errors import PlanError
from torchledger.planner.fitted import Fitted, Predict, Rest, slopes
from torchledger.planner.held_out import is_clearly_worse, left_out, mean_error
from torchledger.planner.likeness import Place, likeness

#: Constants that are fitted, each with the spread of its logarithm between clusters and stacks, and with bounds.
SPREADS: Mapping[str, float] = {
    "matmul_share": 0.3,
    "memory_share": 0.4,
    "host_s": 1.2,
    "network_factor": 0.8,
    "link_factor": 0.5,
    "attention_factor": 0.5,
    "unaligned_share": 0.8,
    "overhead": 0.2,
}
#: Beyond these no constant is looked for.
BOUNDS: Mapping[str, tuple[float, float]] = {
    "matmul_share": (0.2, 1.2),
    "memory_share": (0.2, 1.0),
    "network_factor": (0.05, 1.5),
    "link_factor": (0.2, 1.3),
    "attention_factor": (0.2, 2.0),
    "overhead": (0.5, 3.0),
    "unaligned_share": (0.1, 1.0),
}
#: Spread of a row about its prediction before any row is seen, and how many rows that belief is worth.
_SIGMA, _SIGMA_ROWS = 0.08, 3.0
#: Spread that the fit grants a row: a cluster's constants are sought as if its steps repeated to this. Less than what
#: is left over in the end, so that five rows outweigh the prior.
NOISE = 0.05
#: Spread of what the constants leave over and like questions share.
SHARED = 0.15
#: With shared rests, how many rows the belief in all these spreads is worth.
_BELIEF_ROWS = 6.0
#: Up to so many rows each is also foretold by the others; more outweigh any prior.
_FEW = 100
#: Rows after which more tell little of a few constants.
ENOUGH = 20
#: Beyond this there is nothing to fit, and intervals leave what numbers can hold.
_IMPOSSIBLE_TIMES_OFF = 1e6
_ROUNDS, _LARGEST_MOVE = 8, 0.5
#: Degrees of freedom of the rows' spread: a run that thrashed or was disturbed must not move the constants (Student's t
#: in place of a normal, Gelman et al., section 17.2), and how often the weights that follow from it are renewed.
_TAIL, _RENEWALS = 4.0, 3


def fit(
    rows: Sequence[tuple[Predict, float]],
    start: Constants,
    *,
    spreads: Mapping[str, float] = SPREADS,
    weights: Sequence[float] | None = None,
    places: Sequence[Place] | None = None,
) -> Fitted:
    """Fit constants to measured rows.

    Args:
        rows: a prediction under given constants, and the measured seconds.
        start: the default constants, which are the prior's middle.
        spreads: which constants are free, and how far they lie apart between clusters.
        weights: of each row; nothing weighs all alike.
        places: the questions that the rows measured; nothing takes their errors as independent.

    Raises:
        PlanError: no rows, or seconds that are not above zero or that no cluster takes.
    """
    if not rows:
        raise PlanError("there are no rows to calibrate with: give 1 to 20 measured steps (--rows measured.csv)")
    if any(not (math.isfinite(t) and t > 0) for _, t in rows):
        raise PlanError("measured seconds must be finite and above zero")
    if any(abs(math.log(t) - math.log(predict(start))) > math.log(_IMPOSSIBLE_TIMES_OFF) for predict, t in rows):
        raise PlanError(
            f"measured seconds are more than {_IMPOSSIBLE_TIMES_OFF:,.0f} times off what is predicted: no constants"
            " explain that; look at the unit and the number of chips"
        )
    told = [1.0] * len(rows) if weights is None else list(weights)
    seen = _Seen([predict for predict, _ in rows], [math.log(t) for _, t in rows], told, places).weighed(told)
    names = tuple(name for name in spreads if getattr(start, name) is not None)
    free = {name: spreads[name] for name in names}
    first = _left_over(seen, start)
    alone = _foretold(seen, start, free) if 1 < len(rows) <= _FEW else None
    if alone is not None and is_clearly_worse(alone, first):
        return _kept(first, start, mean_error(alone))
    now = _most_likely(seen, start, free)
    for _ in range(_RENEWALS):
        seen = seen.weighed([w * t for w, t in zip(told, _trust(seen, now), strict=True)])
        now = _most_likely(seen, now, free, start)
    found = _normal(seen, now, start, free)
    covariance = inverse(found.matrix)
    moved = sum((math.log(getattr(now, n)) - math.log(getattr(start, n))) ** 2 / s**2 for n, s in free.items())
    sigma, degrees, scale = _spread(seen, found, covariance, moved)
    return Fitted(
        constants=replace(now, source=f"fitted to {len(rows)} measured rows"),
        names=names,
        covariance=tuple(tuple(scale * each for each in row) for row in covariance),
        sigma=sigma,
        degrees=degrees,
        num_rows=len(rows),
        before=mean_error(first),
        after=mean_error(_left_over(seen, now)),
        held_out=None if alone is None else mean_error(alone),
        rest=_rest(seen, found, scale),
    )


def foretold(rows: Sequence[tuple[Predict, float]], start: Constants, places: Sequence[Place]) -> list[float]:
    """By row, ln t less what all other rows lead to expect of it: what no calibration with them could know.

    Args:
        rows: a prediction under given constants, and the measured seconds.
        start: the default constants.
        places: the questions that the rows measured.
    """
    free = {name: spread for name, spread in SPREADS.items() if getattr(start, name) is not None}
    seen = _Seen([predict for predict, _ in rows], [math.log(t) for _, t in rows], [1.0] * len(rows), places)
    return _foretold(seen, start, free)


def _foretold(seen: _Seen, start: Constants, spreads: Mapping[str, float]) -> list[float]:
    """The same, ln p being taken as straight in the logarithms of the constants from the default ones on."""
    scaled = [
        [g * spread for g, spread in zip(row, spreads.values(), strict=True)]
        for row in slopes(seen.predicts, start, tuple(spreads))
    ]
    rests = _together(seen.places, seen.weights)
    together = [
        [dot(a, b) + rest for b, rest in zip(scaled, row, strict=True)] for a, row in zip(scaled, rests, strict=True)
    ]
    return left_out(together, _left_over(seen, start))


def _kept(rest: Sequence[float], start: Constants, held_out: float) -> Fitted:
    """The default constants, and the spread of the rows about them."""
    size = len(rest)
    degrees = _SIGMA_ROWS + size
    return Fitted(
        constants=replace(start, source=f"{start.source}, kept after {size} measured rows"),
        names=(),
        covariance=(),
        sigma=math.sqrt((_SIGMA_ROWS * _SIGMA**2 + dot(rest, rest)) / degrees),
        degrees=degrees,
        num_rows=size,
        before=mean_error(rest),
        after=mean_error(rest),
        held_out=held_out,
    )


def _spread(seen: _Seen, found: _Normal, covariance: Matrix, moved: float) -> tuple[float, float, float]:
    """Sigma, its degrees of freedom, and by how much the covariance is scaled with it.

    Args:
        seen: the rows.
        found: the fit at its end.
        covariance: of the constants.
        moved: Σ (ln c - ln c_0)²/s², how far the constants went in the prior's own measure.
    """
    if seen.places is None:
        explained = (w * quadratic(covariance, g) / NOISE**2 for w, g in zip(seen.weights, found.slopes, strict=True))
        degrees = _SIGMA_ROWS + max(0.0, sum(seen.weights) - sum(explained))
        squares = sum(w * r * r for w, r in zip(seen.weights, found.rest, strict=True))
        return math.sqrt((_SIGMA_ROWS * _SIGMA**2 + squares) / degrees), degrees, 1.0
    size = len(found.rest)
    scale = (_BELIEF_ROWS + moved + dot(found.rest, _weighed(seen, found.rest))) / (_BELIEF_ROWS + size)
    # the belief is in the mean of these spreads, clusters differ about it: only rows make the tails thinner, less one
    # for the level of the cluster and one for the spread itself, which the same rows tell
    return NOISE * math.sqrt(scale), max(_SIGMA_ROWS, size - 2.0), scale


def _rest(seen: _Seen, found: _Normal, scale: float) -> Rest | None:
    if seen.places is None or seen.precision is None:
        return None
    return Rest(
        places=tuple(seen.places),
        pull=tuple(each / scale for each in times(seen.precision, found.rest)),
        precision=tuple(tuple(each / scale for each in row) for row in seen.precision),
        slopes=tuple(tuple(row) for row in found.slopes),
        shared=SHARED * math.sqrt(scale),
    )


class _Seen(NamedTuple):
    """Rows: how each is predicted, the logarithm of its measured seconds, its weight, its question if that is told."""

    predicts: Sequence[Predict]
    goal: Sequence[float]
    weights: Sequence[float]
    places: Sequence[Place] | None
    precision: Matrix | None = None

    def weighed(self, weights: Sequence[float]) -> _Seen:
        """The same rows, each weighing so much."""
        precision = None if self.places is None else inverse(_together(self.places, weights))
        return self._replace(weights=list(weights), precision=precision)


class _Normal(NamedTuple):
    """The fit as it looks from some constants, where ln p is straight in the logarithms of the constants.

    Attributes:
        rest: by row, ln t - ln p.
        slopes: by row, of ln p along each ln c.
        matrix, side: the normal equations; the matrix is the posterior's precision.
    """

    rest: list[float]
    slopes: list[list[float]]
    matrix: list[list[float]]
    side: list[float]


def _trust(seen: _Seen, now: Constants) -> list[float]:
    """Weight of each row under Student's t: 1 where it lies as far off as most, less where it lies farther."""
    rest = [abs(each) for each in _left_over(seen, now)]
    scale = max(_SIGMA, 1.4826 * median(rest))  # 1.4826: of a normal, the spread over the median distance
    return [min(1.0, (_TAIL + 1) / (_TAIL + (each / scale) ** 2)) for each in rest]


def _most_likely(
    seen: _Seen, first: Constants, spreads: Mapping[str, float], middle: Constants | None = None
) -> Constants:
    """Gauss and Newton's rounds, each move and each constant within bounds.

    Args:
        seen: the rows.
        first: where they begin.
        spreads: of the prior.
        middle: of the prior; nothing is where they begin.
    """
    start = first if middle is None else middle
    names = tuple(spreads)
    at = [math.log(getattr(first, name)) for name in names]
    for _ in range(_ROUNDS):
        found = _normal(seen, _at(start, names, at), start, spreads)
        move = solve(found.matrix, found.side)
        at = [
            _bounded(name, a + max(-_LARGEST_MOVE, min(_LARGEST_MOVE, d)))
            for name, a, d in zip(names, at, move, strict=True)
        ]
        if max(map(abs, move)) < 1e-4:
            break
    return _at(start, names, at)


def _normal(seen: _Seen, now: Constants, start: Constants, spreads: Mapping[str, float]) -> _Normal:
    rest = _left_over(seen, now)
    gradients = slopes(seen.predicts, now, tuple(spreads))
    size = len(spreads)
    matrix = [[0.0] * size for _ in range(size)]
    side = [0.0] * size
    columns = list(zip(*gradients, strict=True))
    for i, column in enumerate(columns):
        weighed = _weighed(seen, column)
        side[i] = dot(weighed, rest)
        for j in range(size):
            matrix[i][j] = dot(weighed, columns[j])
    for i, (name, spread) in enumerate(spreads.items()):
        matrix[i][i] += 1 / spread**2
        side[i] += (math.log(getattr(start, name)) - math.log(getattr(now, name))) / spread**2
    return _Normal(rest, gradients, matrix, side)


def _weighed(seen: _Seen, column: Sequence[float]) -> list[float]:
    """Σ⁻¹x, x being one number of each row."""
    if seen.precision is None:
        return [w / NOISE**2 * x for w, x in zip(seen.weights, column, strict=True)]
    return times(seen.precision, column)


def _together(places: Sequence[Place] | None, weights: Sequence[float]) -> list[list[float]]:
    """Σ: where questions are told like ones err together, and each row by itself, the more the less it weighs."""
    size = len(weights)
    if places is None:
        together = [[0.0] * size for _ in range(size)]
    else:
        together = [[SHARED**2 * likeness(a, b) for b in places] for a in places]
    for i, weight in enumerate(weights):
        together[i][i] += NOISE**2 / weight
    return together


def _left_over(seen: _Seen, constants: Constants) -> list[float]:
    """By row, ln t - ln p."""
    return [g - math.log(predict(constants)) for predict, g in zip(seen.predicts, seen.goal, strict=True)]


def _at(start: Constants, names: Sequence[str], logs: Sequence[float]) -> Constants:
    moved: dict[str, Any] = {name: math.exp(value) for name, value in zip(names, logs, strict=True)}
    return replace(start, **moved)


def _bounded(name: str, log: float) -> float:
    low, high = BOUNDS.get(name, (0.0, math.inf))
    return math.log(min(high, max(low, math.exp(log))))
