"""The published rows, and what predicts them without having seen them: for the pages that `make validation` writes."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from torchledger.planner.constants import Constants, default_constants
from torchledger.planner.errors import PlanError
from torchledger.planner.estimator import Estimator
from torchledger.planner.fitted import Predict as Predicted
from torchledger.planner.measured import MeasuredRow, Reading, read_table

ROWS = Path(__file__).parents[1] / "tests" / "published" / "throughput"

#: Seconds (or bytes) of a row's question; nothing if the planner refuses it.
Predict = Callable[[MeasuredRow], float | None]

_ESTIMATORS: dict[str, Estimator] = {}

#: For a row, its predicted seconds under any constants.
Adjustable = Callable[[MeasuredRow], Predicted]

#: Predicted bytes of the fullest chip, and what a chip has (nothing: unknown).
Memory = Callable[[MeasuredRow], tuple[float, float | None]]


def readings() -> tuple[Reading, ...]:
    """Every table of measured rows with the facts of its sources."""
    return tuple(read_table(path, ROWS / "sources.toml") for path in sorted(ROWS.glob("*.csv")))


def trusted(rows: Sequence[MeasuredRow]) -> tuple[MeasuredRow, ...]:
    """Rows with seconds that nobody had to recall or mark as suspect (quality C)."""
    return tuple(row for row in rows if row.step_s is not None and row.quality != "C")


@cache
def _folds() -> dict[str, dict[str, float]]:
    return tomllib.loads((ROWS / "folds.toml").read_text(encoding="utf-8"))


def constants_without(row: MeasuredRow) -> Constants:
    """The chip's default constants, with the shares that were fitted without the rows of this one's family."""
    fold = _folds().get(row.family, _folds()["all"])
    shares: dict[str, Any] = {name: fold[name] for name in ("matmul_share", "memory_share", "sigma")}
    return replace(default_constants(row.cluster.chip), **shares)


def estimated(row: MeasuredRow) -> float | None:
    """Seconds with constants that know nothing of the row's family; nothing where the planner refuses the layout."""
    try:
        return under(row)(constants_without(row))
    except PlanError:
        return None


def under(row: MeasuredRow) -> Predicted:
    """The planner's seconds of a row under any constants; what does not depend on them is computed once."""
    estimator = _ESTIMATORS.setdefault(row.place, Estimator(row.spec, row.recipe, row.cluster))
    return lambda constants: estimator.with_constants(constants).step(row.strategy).step_s


def held(row: MeasuredRow) -> tuple[float, float | None]:
    """The planner's bytes of the fullest chip, and what it may use."""
    estimator = Estimator(row.spec, row.recipe, row.cluster)
    return estimator.estimate(row.strategy).peak_bytes, estimator.capacity_bytes
