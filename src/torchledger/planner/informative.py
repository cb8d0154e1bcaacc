"""Which few runs to measure, out of those that are planned: the ones that leave the others least uncertain.

Nothing measured is needed: what a row can tell of the others follows from the slopes of its prediction along the
constants, from their spread between clusters, and from how alike the questions are (A-optimal design, chosen greedily:
Pukelsheim, Optimal Design of Experiments, 1993, chapter 6; for Gaussian processes Krause et al., JMLR 9, 2008).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torchledger.planner.algebra import inverse, quadratic
from torchledger.planner.calibration import NOISE, SHARED, SPREADS
from torchledger.planner.constants import Constants
from torchledger.planner.fitted import Predict, slopes
from torchledger.planner.likeness import Place, likeness


def informative(
    predicts: Sequence[Predict],
    places: Sequence[Place],
    start: Constants,
    num_rows: int,
    *,
    spreads: Mapping[str, float] = SPREADS,
) -> tuple[int, ...]:
    """The rows to measure, the most telling first, as indices.

    Args:
        predicts: of every planned run, its seconds under given constants.
        places: its question.
        start: the default constants.
        num_rows: how many can be measured.
        spreads: which constants are free, and how far they lie apart between clusters.
    """
    together = believed(predicts, places, start, spreads=spreads)
    chosen: list[int] = []
    for _ in range(min(num_rows, len(predicts))):
        rest = [i for i in range(len(predicts)) if i not in chosen]
        chosen.append(max(rest, key=lambda i: _explained(together, [*chosen, i])))
    return tuple(chosen)


def believed(
    predicts: Sequence[Predict],
    places: Sequence[Place],
    start: Constants,
    *,
    spreads: Mapping[str, float] = SPREADS,
) -> list[list[float]]:
    """What is believed of runs before any is measured: the covariance of ln t - ln p, without a row's own noise.

    Arguments as for `informative`.
    """
    names = tuple(name for name in spreads if getattr(start, name) is not None)
    scaled = [[g * spreads[n] for g, n in zip(row, names, strict=True)] for row in slopes(predicts, start, names)]
    return [
        [
            sum(a * b for a, b in zip(x, y, strict=True)) + SHARED**2 * likeness(p, q)
            for y, q in zip(scaled, places, strict=True)
        ]
        for x, p in zip(scaled, places, strict=True)
    ]


def _explained(together: Sequence[Sequence[float]], chosen: Sequence[int]) -> float:
    """Variance of all rows that measuring the chosen ones takes away."""
    own = [[together[i][j] + (NOISE**2 if i == j else 0.0) for j in chosen] for i in chosen]
    precision = inverse(own)
    return sum(quadratic(precision, [row[i] for i in chosen]) for row in together)
