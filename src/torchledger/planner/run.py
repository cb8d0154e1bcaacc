"""What a napkin's run takes beside days and money: energy, carbon, and the wall clock with everything that it loses."""

from __future__ import annotations

from dataclasses import dataclass

from torchledger.machine import Chip, Cluster
from torchledger.planner.energy import carbon_kg, power
from torchledger.planner.losses import Losses, losses
from torchledger.planner.napkin import Napkin
from torchledger.planner.state import StateBytes
from torchledger.planner.terms import RunTerms


@dataclass(frozen=True, slots=True)
class Run:
    """The run around a napkin's answer.

    Attributes:
        energy_j: joules of its steps; nothing where the chip's power is unknown.
        carbon_kg: of that energy; nothing where the grid's figure is unknown.
        losses: what the wall clock loses outside of steps; nothing where the number of chips or days is open.
        assumptions: what these rest on.
    """

    energy_j: float | None
    carbon_kg: float | None
    losses: Losses | None
    assumptions: tuple[str, ...]

    @property
    def wall_days(self) -> float | None:
        """Days of wall clock, losses in."""
        return None if self.losses is None else self.losses.wall_s / 86400


def run_of(napkin: Napkin, chip: Chip, state: StateBytes, terms: RunTerms) -> Run:
    """Energy, carbon and losses of a napkin's answer.

    Args:
        napkin: the answer: its chip-hours take the energy, its days and chips the losses.
        chip: what it runs on.
        state: bytes per parameter; a checkpoint holds all but the gradients.
        terms: what the user says of power, grid and losses.

    Raises:
        PlanError: a term that cannot be.
    """
    drawn = power(chip, tdp_share=terms.tdp_share, host_w=terms.host_w, pue=terms.pue)
    joules = None if drawn is None else drawn.watts * napkin.chip_hours * 3600
    notes = () if drawn is None else drawn.assumptions
    lost = None
    if napkin.num_chips is not None and napkin.days is not None:
        lost = losses(
            Cluster.of(chip, napkin.num_chips),
            napkin.days * 86400,
            checkpoint_bytes=napkin.params * (state.total - state.gradient),
            failures_per_chip_hour=terms.failures_per_chip_hour,
            restart_s=terms.restart_s,
            checkpoint_s=terms.checkpoint_s,
            evaluation=terms.evaluation,
            goodput=terms.goodput,
        )
        notes = (*notes, *lost.assumptions)
    return Run(joules, carbon_kg(joules, terms.carbon_g_per_kwh), lost, notes)
