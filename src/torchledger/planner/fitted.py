"""Constants fitted to measured rows, with what they are known to: what a step is expected to take, and its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from torchledger.planner.algebra import Matrix, dot, quadratic, student, times
from torchledger.planner.constants import Constants
from torchledger.planner.likeness import Place, likeness

__all__ = ["Fitted", "Predict", "Rest", "slopes"]

#: Seconds of a step under some constants.
Predict = Callable[[Constants], float]

_STEP = 0.02


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
        names: those that were free; none where the default constants were kept.
        covariance: of their logarithms.
        sigma: spread of the logarithm of a measured step about its prediction.
        degrees: of freedom that sigma is known with.
        num_rows: how many rows were fitted.
        before, after: mean absolute relative errors of those rows with the default and with the fitted constants, each
            alone: without what the constants leave over of like rows.
        held_out: the error of those rows where each is predicted from the others alone; nothing where that is unknown.
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
    held_out: float | None
    rest: Rest | None = None

    @property
    def is_default(self) -> bool:
        """Whether the default constants were kept, because they predict rows better than the other rows do."""
        return not self.names

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


def slopes(predicts: Sequence[Predict], at: Constants, names: Sequence[str]) -> list[list[float]]:
    """By row, the slope of ln p along each ln c, by a small step up."""
    base = [math.log(predict(at)) for predict in predicts]
    columns = []
    for name in names:
        moved = replace(at, **{name: getattr(at, name) * math.exp(_STEP)})
        columns.append([(math.log(predict(moved)) - b) / _STEP for predict, b in zip(predicts, base, strict=True)])
    return [[column[i] for column in columns] for i in range(len(predicts))]
