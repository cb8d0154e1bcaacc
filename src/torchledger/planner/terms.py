"""`RunTerms`: what the user says of a run's cost beside its steps."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RunTerms:
    """What a run's cost depends on beside its steps; nothing is unknown, or the default that the answer states.

    Attributes:
        price_per_chip_hour: of one chip; without it money is unknown.
        carbon_g_per_kwh: of the grid; without it carbon is unknown.
        tdp_share, host_w, pue: for `energy.power`.
        goodput, evaluation, failures_per_chip_hour, restart_s, checkpoint_s: for `losses.losses`.
    """

    price_per_chip_hour: float | None = None
    carbon_g_per_kwh: float | None = None
    tdp_share: float | None = None
    host_w: float | None = None
    pue: float | None = None
    goodput: float | None = None
    evaluation: float | None = None
    failures_per_chip_hour: float | None = None
    restart_s: float | None = None
    checkpoint_s: float | None = None
