"""Where a measured step will lie, once constants were fitted to measured rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from torchledger.planner.calibration_file import read_fitted
from torchledger.planner.constants import Constants
from torchledger.planner.estimator import Estimator
from torchledger.planner.likeness import place
from torchledger.planner.outcome import Plan


def calibrated(plan: Plan, path: Path) -> Plan:
    """The plan with what its step is expected to take, and the interval of 90 % probability.

    Neither is told where a file has constants by hand, and where the default ones were kept nothing else is expected.

    Args:
        plan: made with the constants of the file.
        path: the file that `calibrate` wrote.
    """
    _, fitted = read_fitted(path, plan.cluster.chip)
    if fitted is None:
        return replace(plan, interval_s=None)

    def seconds(constants: Constants) -> float:
        estimator = Estimator(plan.spec, plan.recipe, plan.cluster, constants=constants)
        return estimator.estimate(plan.strategy).step_s

    here = place(plan.spec, plan.recipe, plan.strategy)
    expected_s = None if fitted.rest is None else fitted.expected(seconds, here)
    return replace(plan, expected_s=expected_s, interval_s=fitted.interval(seconds, here))
