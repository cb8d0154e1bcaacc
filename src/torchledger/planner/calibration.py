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
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, NamedTuple

from torchledger.planner.algebra import Matrix, dot, inverse, quadratic, solve, student, times
from torchledger.planner.constants import Constants
from torchledger.planner.errors import PlanError
from torchledger.planner.likeness import Place, likeness
from torchledger.units import format_duration, format_number

#: Seconds of a step under some constants.
Predict = Callable[[Constants], float]

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
_BOUNDS: Mapping[str, tuple[float, float]] = {
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
#: Rows after which more tell little of a few constants.
ENOUGH = 20
#: Farther off than so many times a wrong unit, column or layout is likelier than a slow cluster.
_MOST_TIMES_OFF = 10.0
#: Beyond this there is nothing to fit, and intervals leave what numbers can hold.
_IMPOSSIBLE_TIMES_OFF = 1e6
_STEP, _ROUNDS, _LARGEST_MOVE = 0.02, 8, 0.5
#: Degrees of freedom of the rows' spread: a run that thrashed or was disturbed must not move the constants (Student's t
#: in place of a normal, Gelman et al., section 17.2), and how often the weights that follow from it are renewed.
_TAIL, _RENEWALS = 4.0, 3


@dataclass(frozen=True, slots=True)
class Rest:
    """What the constants left over of each row, for questions like it.

    Attributes:
        places: the rows' questions.
        pull: Σ⁻¹r: a question of likeness k to the rows moves by k·pull in the logarithm.
        precision: Σ⁻¹.
        slopes: of the rows' ln p along each fitted ln c.
        shared: τ, the spread of what like questions share.
    """

    places: tuple[Place, ...]
    pull: tuple[float, ...]
    precision: Matrix
    slopes: Matrix
    shared: float

    def likeness(self, place: Place) -> list[float]:
        """Covariance of a question's rest with each row's."""
        return [self.shared**2 * likeness(place, other) for other in self.places]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Constants with what they are known to.

    Attributes:
        constants: the fitted ones.
        names: those that were free.
        covariance: of their logarithms.
        sigma: spread of the logarithm of a measured step about its prediction.
        degrees: of freedom that sigma is known with.
        num_rows: how many rows were fitted.
        before, after: mean absolute relative errors of those rows with the default and with the fitted constants.
        rest: what like questions share; nothing where the rows' questions were not told.
    """

    constants: Constants
    names: tuple[str, ...]
    covariance: tuple[tuple[float, ...], ...]
    sigma: float
    degrees: float
    num_rows: int
    before: float
    after: float
    rest: Rest | None = None

    def expected(self, predict: Predict, place: Place | None = None) -> float:
        """Seconds that a measured step is expected to take.

        Args:
            predict: its seconds under given constants.
            place: its question; nothing leaves out what rows like it left over.
        """
        middle = predict(self.constants)
        if self.rest is None or place is None:
            return middle
        return middle * math.exp(dot(self.rest.likeness(place), self.rest.pull))

    def interval(self, predict: Predict, place: Place | None = None, probability: float = 0.9) -> tuple[float, float]:
        """Where a measured step lies with this probability; arguments as for `expected`."""
        middle = self.expected(predict, place)
        slope = slopes([predict], self.constants, self.names)[0]
        half = student(0.5 + probability / 2, self.degrees) * math.sqrt(self._variance(slope, place))
        return middle * math.exp(-half), middle * math.exp(half)

    def _variance(self, slope: Sequence[float], place: Place | None) -> float:
        rest = self.rest
        if rest is None:
            return self.sigma**2 + quadratic(self.covariance, slope)
        if place is None:  # what like questions share is then unknown in full
            return self.sigma**2 + rest.shared**2 + quadratic(self.covariance, slope)
        like = rest.likeness(place)
        told = times(rest.precision, like)
        own = [g - dot(column, told) for g, column in zip(slope, zip(*rest.slopes, strict=True), strict=True)]
        return self.sigma**2 + rest.shared**2 - dot(like, told) + quadratic(self.covariance, own)


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
        before=_error(seen, start),
        after=_error(seen, now),
        rest=_rest(seen, found, scale),
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


def suspicious(rows: Sequence[tuple[str, float, float]]) -> tuple[str, ...]:
    """Rows that the default constants predict more than 10 times off, each with what to look at.

    Args:
        rows: each row's place, its measured and its predicted seconds.

    >>> suspicious([("m.csv:2", 1.0, 1.2), ("m.csv:3", 0.001, 1.2)])
    ('m.csv:3: 1.2 s predicted, 1 ms measured, 1,200 times less: look at its unit, its number of chips and its layout',)
    """
    return tuple(
        f"{place}: {format_duration(predicted)} predicted, {format_duration(measured)} measured,"
        f" {_times(predicted / measured)}: look at its unit, its number of chips and its layout"
        for place, measured, predicted in rows
        if not 1 / _MOST_TIMES_OFF <= predicted / measured <= _MOST_TIMES_OFF
    )


def _times(ratio: float) -> str:
    return f"{format_number(max(ratio, 1 / ratio))} times {'less' if ratio > 1 else 'more'}"


class _Seen(NamedTuple):
    """Rows: how each is predicted, the logarithm of its measured seconds, its weight, its question if that is told."""

    predicts: Sequence[Predict]
    goal: Sequence[float]
    weights: Sequence[float]
    places: Sequence[Place] | None
    precision: Matrix | None = None

    def weighed(self, weights: Sequence[float]) -> _Seen:
        """The same rows, each weighing so much."""
        precision = None if self.places is None else _precision(self.places, weights)
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
    rest = [abs(g - math.log(predict(now))) for predict, g in zip(seen.predicts, seen.goal, strict=True)]
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
    rest = [g - math.log(predict(now)) for predict, g in zip(seen.predicts, seen.goal, strict=True)]
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


def _precision(places: Sequence[Place], weights: Sequence[float]) -> Matrix:
    """Σ⁻¹ of rows whose questions are told: like ones err together, and each by itself, the more the less it weighs."""
    together = [[SHARED**2 * likeness(a, b) for b in places] for a in places]
    for i, weight in enumerate(weights):
        together[i][i] += NOISE**2 / weight
    return inverse(together)


def _error(seen: _Seen, constants: Constants) -> float:
    pairs = zip(seen.predicts, seen.goal, strict=True)
    return sum(abs(predict(constants) / math.exp(g) - 1) for predict, g in pairs) / len(seen.goal)


def _at(start: Constants, names: Sequence[str], logs: Sequence[float]) -> Constants:
    moved: dict[str, Any] = {name: math.exp(value) for name, value in zip(names, logs, strict=True)}
    return replace(start, **moved)


def _bounded(name: str, log: float) -> float:
    low, high = _BOUNDS.get(name, (0.0, math.inf))
    return math.log(min(high, max(low, math.exp(log))))


def slopes(predicts: Sequence[Predict], at: Constants, names: Sequence[str]) -> list[list[float]]:
    """By row, the slope of ln p along each ln c, by a small step up."""
    base = [math.log(predict(at)) for predict in predicts]
    columns = []
    for name in names:
        moved = replace(at, **{name: getattr(at, name) * math.exp(_STEP)})
        columns.append([(math.log(predict(moved)) - b) / _STEP for predict, b in zip(predicts, base, strict=True)])
    return [list(row) for row in zip(*columns, strict=True)]
