"""Where a measured step will lie, once constants were fitted to measured rows."""

from __future__ import annotations

from pathlib import Path

from torchledger.planner.calibration_file import read_fitted
from torchledger.planner.constants import Constants
from torchledger.planner.estimator import Estimator
from torchledger.planner.outcome import Plan


def interval_of(plan: Plan, path: Path) -> tuple[float, float] | None:
    """The interval of a plan's step with 90 % probability; nothing where a file has constants by hand.

    Args:
        plan: made with the constants of the file.
        path: the file that `calibrate` wrote.
    """
    _, fitted = read_fitted(path, plan.cluster.chip)
    if fitted is None:
        return None

    def seconds(constants: Constants) -> float:
        estimator = Estimator(plan.spec, plan.recipe, plan.cluster, constants=constants)
        return estimator.estimate(plan.strategy).step_s

    return fitted.interval(seconds)
