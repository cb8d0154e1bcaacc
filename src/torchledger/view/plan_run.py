"""What the whole run costs: days, chip-hours, money, energy, carbon; losses outside of steps apart."""

from __future__ import annotations

from collections.abc import Iterator

from torchledger.planner.outcome import Plan
from torchledger.units import format_count, format_money, format_number, format_percent, group_digits

_J_PER_MWH = 3.6e9


def run_facts(plan: Plan, currency: str = "USD") -> Iterator[tuple[str, str]]:
    """Totals of the run, each unknown one with the flag that would make it known.

    Args:
        plan: the plan.
        currency: of its money.
    """
    if not plan.recipe.num_tokens:
        yield "tokens", "open; --tokens 15T gives days, chip-hours, money and energy"
        return
    yield "tokens", f"{format_count(plan.recipe.num_tokens)} in {group_digits(plan.recipe.num_steps)} steps"
    yield "days", _days(plan)
    yield "chip-hours", "unknown" if plan.chip_hours is None else group_digits(round(plan.chip_hours))
    yield "money", "unknown; --price gives it" if plan.money is None else format_money(plan.money, currency)
    yield "energy", energy_text(plan.energy_j)
    yield "carbon", carbon_text(plan.carbon_kg)


def energy_text(energy_j: float | None) -> str:
    """Energy as electricity is sold.

    >>> energy_text(3.6e9), energy_text(9e12)
    ('1 MWh', '2,500 MWh')
    """
    return "unknown" if energy_j is None else f"{format_number(energy_j / _J_PER_MWH)} MWh"


def carbon_text(carbon_kg: float | None) -> str:
    """Carbon dioxide equivalent in tonnes.

    >>> carbon_text(12_500.0)
    '12.5 t CO2e'
    """
    return "unknown; --carbon gives it" if carbon_kg is None else f"{format_number(carbon_kg / 1000)} t CO2e"


def _days(plan: Plan) -> str:
    """Days with the losses; the share of each cause, and what is left without them."""
    if plan.days is None:
        return "unknown"
    lost = {cause: share for cause, share in plan.losses.items() if share}
    if not lost:
        return f"{format_number(plan.days, 4)}, nothing lost outside of steps"
    share = sum(lost.values())
    told = ", ".join(f"{cause} {format_percent(each)}" for cause, each in lost.items())
    steps = format_number(plan.recipe.num_steps * plan.step_s / 86400, 4)
    return f"{format_number(plan.days, 4)}; steps alone {steps}, {format_percent(share)} of the days lost: {told}"
