"""Spikes: a loss or gradient norm far above what the steps before it had. Reported; nothing is rolled back."""

import math
import statistics
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    deviation = _TO_DEVIATION * statistics.median([abs(each - middle) for each in earlier])
    return max(deviation, LEAST_SCATTER * abs(middle), 1e-12)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a watch says of one value.

    Attributes:
        score: the value's robust score; nothing while there are too few to compare with, or where it is no number.
        usual: median of the values before it, where a spike begins.
        begins: whether a spike begins here: the score is beyond the threshold, the one before was not.
    """

    score: float | None = None
    usual: float | None = None
    begins: bool = False


class SpikeWatch:
    """Watches one quantity of a run, step after step.

    Args:
        earlier: its values at the steps before, oldest first, so that a resumed run judges as the uninterrupted one.
        logarithmic: whether factors matter and not differences, as for gradient norms, whose tail is long.
    """

    def __init__(self, earlier: Iterable[float | None] = (), *, logarithmic: bool = False) -> None:
        self._logarithmic = logarithmic
        self._values: deque[float] = deque(maxlen=WINDOW)
        self._is_high = False
        for value in earlier:
            self.judge(value)

    def judge(self, value: float | None) -> Verdict:
        """Judge the next value. One that is no number is no spike: it is counted elsewhere and leaves no trace here."""
        if value is None or not math.isfinite(value) or (self._logarithmic and value <= 0):
            return Verdict()
        seen = math.log(value) if self._logarithmic else value
        score = robust_score(seen, self._values)
        is_high = score is not None and score > THRESHOLD
        begins, self._is_high = is_high and not self._is_high, is_high
        usual = statistics.median(self._values) if begins else None
        self._values.append(seen)
        return Verdict(score, math.exp(usual) if usual is not None and self._logarithmic else usual, begins)
