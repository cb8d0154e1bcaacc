"""What a long run loses outside of its steps: failures, checkpoints, evaluation. Kept apart from the step's seconds.

Failures come at a constant rate for every chip, so that the mean time between them is M = 1 / (rate · chips). With δ
seconds for writing a checkpoint, τ seconds of training between two of them and R seconds for starting again, a stretch
of training takes (Daly, Future Generation Computer Systems 22 (2006) 303-312, equation 20)

    E = M · exp(R/M) · (exp((τ + δ)/M) - 1)

of wall clock. A share 1 - exp(-R/M) of it goes into starting again, δ/E into checkpoints, τ/E into training, and the
rest is work that was done and lost. Daly's optimum (equation 37) is τ = √(2δM)·(1 + √(δ/2M)/3 + δ/(18M)) - δ; its first
term is Young's (Communications of the ACM 17(9), 1974).
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any

from torchledger.formula import num_parameters
from torchledger.machine import Cluster
from torchledger.planner.errors import PlanError
from torchledger.planner.terms import RunTerms
from torchledger.spec import ModelSpec
from torchledger.units import (
    format_bytes_decimal,
    format_duration,
    format_percent,
    format_rate,
    group_digits,
)


@dataclass(frozen=True, slots=True)
class Losses:
    """Where the wall clock of a run goes beside its steps.

    Attributes:
        shares: share of the wall clock by cause; with the share of training they add up to 1.
        run_s: seconds of all steps.
        wall_s: seconds of the whole run.
        interval_s: seconds of training between two checkpoints; nothing where none are written.
        assumptions: what each share rests on.
    """

    shares: Mapping[str, float]
    run_s: float
    wall_s: float
    interval_s: float | None
    assumptions: tuple[str, ...]

    @property
    def goodput(self) -> float:
        """Share of the wall clock that trains."""
        return self.run_s / self.wall_s


def best_interval_s(write_s: float, mtbf_s: float) -> float:
    """Daly's optimum of the training time between checkpoints (equation 37); M where writing takes longer than 2·M.

    His examples (figures 3 to 5), in minutes:

    >>> [round(best_interval_s(5, mtbf), 1) for mtbf in (24 * 60, 6 * 60, 15)]
    [116.7, 56.7, 9.1]
    """
    if write_s >= 2 * mtbf_s:
        return mtbf_s
    x = write_s / (2 * mtbf_s)
    return math.sqrt(2 * write_s * mtbf_s) * (1 + math.sqrt(x) / 3 + x / 9) - write_s


def losses(
    cluster: Cluster,
    run_s: float,
    *,
    checkpoint_bytes: float | None = None,
    failures_per_chip_hour: float | None = None,
    restart_s: float | None = None,
    checkpoint_s: float | None = None,
    interval_s: float | None = None,
    evaluation: float | None = None,
    goodput: float | None = None,
) -> Losses:
    """What a run of `run_s` seconds of steps loses on `cluster`. Everything left out is a stated assumption.

    Args:
        cluster: whose chips fail.
        run_s: seconds of all steps.
        checkpoint_bytes: of one checkpoint; nothing leaves its writing out.
        failures_per_chip_hour: unexpected interruptions.
        restart_s: seconds from a failure until training goes on.
        checkpoint_s: seconds that training waits for one checkpoint; otherwise its bytes over the storage's rate.
        interval_s: seconds of training between checkpoints; otherwise Daly's optimum.
        evaluation: tokens evaluated for each token trained; a forward pass is a third of a step. Nothing: not counted.
        goodput: share of the wall clock that trains, given in place of all of these.

    Raises:
        PlanError: an amount that cannot be.
    """
    _check(
        run_s=run_s,
        checkpoint_bytes=checkpoint_bytes,
        failures_per_chip_hour=failures_per_chip_hour,
        restart_s=restart_s,
        checkpoint_s=checkpoint_s,
        interval_s=interval_s,
        evaluation=evaluation,
    )
    if goodput is not None:
        return _given(run_s, goodput)
    notes: list[str] = []
    mtbf_s = _mtbf_s(cluster, failures_per_chip_hour, notes)
    restart_s = _restart_s(restart_s, notes)
    write_s = _write_s(cluster, checkpoint_bytes, checkpoint_s, notes)
    interval_s = _interval_s(write_s, mtbf_s, interval_s, notes)
    shares = _shares(mtbf_s, restart_s, write_s, interval_s or 0.0)
    training = _training(shares, mtbf_s, restart_s, write_s)
    if evaluation is None:
        notes.append("evaluation is not counted (--evaluation 1% is a token evaluated for every 100 trained)")
    else:
        share = evaluation / 3 / (1 + evaluation / 3)
        shares["evaluation"] = training * share
        training *= 1 - share
        notes.append(
            f"evaluation of {format_percent(evaluation)} of the tokens trained; a forward pass is a third of a step"
        )
    return Losses(MappingProxyType(shares), run_s, run_s / training, interval_s, tuple(notes))


def losses_of_run(spec: ModelSpec, cluster: Cluster, run_s: float, terms: RunTerms) -> Losses:
    """The same for a model under what the user says: a plan's, and those of the offers of a search.

    A checkpoint has FP32 weights and two moments: 12 bytes a parameter (ZeRO, arXiv:1910.02054, section 3.1).

    Raises:
        PlanError: a term that cannot be.
    """
    return losses(
        cluster,
        run_s,
        checkpoint_bytes=12.0 * num_parameters(spec),
        failures_per_chip_hour=terms.failures_per_chip_hour,
        restart_s=terms.restart_s,
        checkpoint_s=terms.checkpoint_s,
        evaluation=terms.evaluation,
        goodput=terms.goodput,
    )


def _training(shares: Mapping[str, float], mtbf_s: float, restart_s: float, write_s: float) -> float:
    """What is left of the wall clock.

    Raises:
        PlanError: nothing is.
    """
    left = 1 - sum(shares.values())
    if left < _LEAST_TRAINING:
        raise PlanError(
            f"a failure every {format_duration(mtbf_s)}, restarts of {format_duration(restart_s)} and checkpoints of"
            f" {format_duration(write_s)} leave no time to train: fewer chips or a smaller model, or say what"
            " else is known (--failure-every, --restart-time, --checkpoint-time; --goodput in place of all)"
        )
    return left


def _interval_s(write_s: float, mtbf_s: float, given: float | None, notes: list[str]) -> float | None:
    if given is None and not write_s:
        return None
    seconds = best_interval_s(write_s, mtbf_s) if given is None else given
    why = "as given" if given is not None else "Daly's optimum, FGCS 22, 2006, equation 37"
    notes.append(f"a checkpoint every {format_duration(seconds)} of training ({why})")
    return seconds


def _given(run_s: float, goodput: float) -> Losses:
    if not 0 < goodput <= 1:
        raise PlanError(f"goodput is {goodput}; it is the share of the wall clock that trains, between 0 and 1")
    shares = {"everything but training": 1 - goodput}
    note = f"goodput {format_percent(goodput)}, as given: all losses together"
    return Losses(MappingProxyType(shares), run_s, run_s / goodput, None, (note,))


def _shares(mtbf_s: float, restart_s: float, write_s: float, interval_s: float) -> dict[str, float]:
    """Shares of the wall clock, see the head of this file; without an interval no work is lost and none written."""
    restarts = -math.expm1(-restart_s / mtbf_s)
    if not interval_s:
        return {"restarts": restarts}
    stretch = (interval_s + write_s) / mtbf_s
    up = (
        (1 - restarts) * stretch / math.expm1(min(stretch, _MOST_STRETCH))
    )  # of the wall clock, what is trained or written and kept
    return {
        "restarts": restarts,
        "work lost to failures": 1 - restarts - up,
        "checkpoints": up * write_s / (interval_s + write_s),
    }


def _mtbf_s(cluster: Cluster, rate: float | None, notes: list[str]) -> float:
    row = _rows()["failures"]
    why = "as given"
    if rate is None:
        rate = row["number"] / (row["days"] * 24 * row["num_chips"])
        why = f"{row['what']}; {row['source']}"
    mtbf_s = 3600 / (rate * cluster.num_chips)
    notes.append(
        f"a failure every {format_duration(mtbf_s)}: {rate:.3g} a chip-hour ({why}),"
        f" on {group_digits(cluster.num_chips)} chips"
    )
    return mtbf_s


def _restart_s(given: float | None, notes: list[str]) -> float:
    row = _rows()["restart"]
    seconds: float = row["seconds"] if given is None else given
    why = "as given" if given is not None else f"{row['what']}; {row['source']}"
    notes.append(f"a restart takes {format_duration(seconds)} ({why})")
    return seconds


def _write_s(cluster: Cluster, num_bytes: float | None, given: float | None, notes: list[str]) -> float:
    if given is not None:
        notes.append(f"a checkpoint takes {format_duration(given)}, as given")
        return given
    if num_bytes is None:
        notes.append("checkpoints, and the work lost since the last one, are not counted: their size is not known")
        return 0.0
    row = _rows()["storage"]
    rate = row["bytes_per_s"] / row["num_chips"] * cluster.num_chips
    seconds: float = num_bytes / rate
    notes.append(
        f"a checkpoint of {format_bytes_decimal(round(num_bytes))} takes {format_duration(seconds)}"
        f" at {format_rate(rate)}, and training waits for it ({row['what']}; {row['source']})"
    )
    return seconds


def _check(**amounts: float | None) -> None:
    mistakes = [
        f"{name} is {value}; it must be a finite number {'of zero or more' if name in _MAY_BE_ZERO else 'above zero'}"
        for name, value in amounts.items()
        if value is not None and not (math.isfinite(value) and (value > 0 or (value == 0 and name in _MAY_BE_ZERO)))
    ]
    if mistakes:
        raise PlanError("\n".join(mistakes))


#: Below this share of the wall clock a run does not end, and figures are rounding.
_LEAST_TRAINING = 1e-9
#: Beyond it the exponential overflows, and nothing is left of the wall clock anyway.
_MOST_STRETCH = 700.0
_MAY_BE_ZERO = frozenset({"restart_s", "checkpoint_s", "evaluation"})


@cache
def _rows() -> Mapping[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/losses.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
