"""Spikes: a loss or gradient norm far above what the steps before it had. Reported; nothing is rolled back."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from torchledger.trainer.sliding import Sliding, middle_of

__all__ = ["SpikeWatch", "Verdict", "robust_score"]

# OLMo-core's SkipStepOptimizer judges by 6 standard deviations over the last 128 steps; here medians replace means.
WINDOW = 128
THRESHOLD = 6.0
LEAST_HISTORY = 32  # fewer values say too little about how much they scatter
LEAST_SCATTER = 1e-3  # of the median: a loss that hardly moves must not make a spike of its last digits
_TO_DEVIATION = 1.4826  # 1 / Φ⁻¹(3/4): makes the median absolute deviation of a normal sample its standard deviation


def robust_score(value: float, earlier: Sequence[float]) -> float | None:
    """How many deviations `value` lies above the median of `earlier`; negative below it.

    z = (x - median) / (1.4826 · MAD), MAD the median of |xᵢ - median| (Iglewicz and Hoaglin 1993, section 3.3): up to
    half of the values may be spikes themselves and move neither.

    >>> round(robust_score(5.0, [1.0, 2.0, 3.0, 4.0] * 8), 4) == round((5 - 2.5) / (1.4826 * 1), 4)
    True

    Returns:
        Nothing where fewer than 32 values came earlier.
    """
    if len(earlier) < LEAST_HISTORY:
        return None
    middle = statistics.median(earlier)
    return (value - middle) / _scatter(earlier, middle)


def _scatter(earlier: Sequence[float], middle: float) -> float:
    # Of values in order these fall and then rise, which Python sorts by putting two rows together.
    deviation = _TO_DEVIATION * middle_of(sorted([abs(each - middle) for each in earlier]))
    return max(deviation, _least_scatter(middle))


def _least_scatter(middle: float) -> float:
    return max(LEAST_SCATTER * abs(middle), 1e-12)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a watch says of one value.

    Attributes:
        score: the value's robust score, where a spike begins.
        usual: median of the values before it, where a spike begins.
        begins: whether a spike begins here: the score is beyond the threshold, the one before was not.
    """

    score: float | None = None
    usual: float | None = None
    begins: bool = False


CALM = Verdict()


class SpikeWatch:
    """Watches one quantity of a run, step after step.

    Args:
        earlier: its values at the steps before, oldest first, so that a resumed run judges as the uninterrupted one.
        logarithmic: whether factors matter and not differences, as for gradient norms, whose tail is long.
    """

    def __init__(self, earlier: Iterable[float | None] = (), *, logarithmic: bool = False) -> None:
        self._logarithmic = logarithmic
        self._values = Sliding(WINDOW)
        self._is_high = False
        for value in earlier:
            self.judge(value)

    def judge(self, value: float | None) -> Verdict:
        """Judge the next value. One that is no number is no spike: it is counted elsewhere and leaves no trace here."""
        if value is None or not math.isfinite(value) or (self._logarithmic and value <= 0):
            return CALM
        seen = math.log(value) if self._logarithmic else value
        score, usual = self._score(seen), self._values.median
        is_high = score is not None and score > THRESHOLD
        begins, self._is_high = is_high and not self._is_high, is_high
        self._values.add(seen)
        if not begins:
            return CALM
        assert usual is not None
        return Verdict(score, math.exp(usual) if self._logarithmic else usual, begins)

    def _score(self, seen: float) -> float | None:
        """The robust score of a value; nothing where it is not needed, because no scatter would make it a spike."""
        middle = self._values.median
        if middle is None or len(self._values) < LEAST_HISTORY:
            return None
        if seen - middle <= THRESHOLD * _least_scatter(middle):
            return None
        return (seen - middle) / _scatter(self._values.ordered, middle)
