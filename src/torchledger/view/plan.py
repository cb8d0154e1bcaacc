"""The plan's screen: the answer in one line, its arithmetic, and what memory has to say."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner import Holding, Napkin
from torchledger.planner.run import Run
from torchledger.units import (
    UNKNOWN,
    format_count,
    format_flops,
    format_money,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.plan_run import carbon_text, energy_text
from torchledger.view.screen import Block, Facts, Lines, assumed


def napkin_screen(
    napkin: Napkin, chip_name: str, holdings: Sequence[Holding] = (), run: Run | None = None
) -> tuple[Block, ...]:
    """The napkin's answer.

    Args:
        napkin: the answer.
        chip_name: what the chips are called.
        holdings: how the training state of that many chips may be held; none where their number is open.
        run: energy, carbon and losses of it.
    """
    return (
        Lines((headline(napkin, chip_name),), mark="headline"),
        Facts((*_facts(napkin), *_run_facts(run))),
        Lines(napkin.arithmetic, "arithmetic", "code"),
        *_state_of(napkin.params, holdings),
        *_losses(run),
        *assumed(napkin.assumptions),
    )


def _run_facts(run: Run | None) -> tuple[tuple[str, str], ...]:
    if run is None:
        return ()
    return (("energy", energy_text(run.energy_j)), ("carbon", carbon_text(run.carbon_kg)))


def _losses(run: Run | None) -> tuple[Block, ...]:
    """What the wall clock loses outside of steps: kept apart from the answer, whose days are those of the steps."""
    if run is None or run.losses is None or run.wall_days is None:
        return ()
    lost = run.losses
    lines = [f"{cause}: {format_percent(share)} of the wall clock" for cause, share in lost.shares.items()]
    days = format_number(run.wall_days, 4)
    lines.append(f"wall clock: {days} days, {format_percent(lost.goodput)} of them in steps (--goodput says otherwise)")
    return (Lines(tuple(lines), "outside of steps, not in the answer above"),)


def headline(napkin: Napkin, chip_name: str) -> str:
    """The answer in one sentence, the solved quantity in it."""
    chips = "some" if napkin.num_chips is None else group_digits(napkin.num_chips)
    days = "" if napkin.days is None else f": {format_number(napkin.days)} days"
    return (
        f"{format_count(napkin.params)} parameters, {format_count(napkin.tokens)} tokens on {chips} × {chip_name}"
        f" at {format_percent(napkin.mfu)} MFU{days}"
    )


def _facts(napkin: Napkin) -> tuple[tuple[str, str], ...]:
    shown = {
        "parameters": group_digits(napkin.params),
        "tokens": group_digits(napkin.tokens),
        "FLOPs": format_flops(napkin.total_flops),
        "days": format_number(napkin.days, 4),
        "chips": group_digits(napkin.num_chips),
        "MFU": format_percent(napkin.mfu),
        "chip-hours": group_digits(round(napkin.chip_hours)),
    }
    shown["money"] = "unknown; --price '$2.80' or --prices FILE gives it"
    if napkin.money is not None:
        price = format_money(napkin.price_per_chip_hour, napkin.currency)
        shown["money"] = f"{format_money(napkin.money, napkin.currency)} at {price} a chip-hour"
    names = {"params": "parameters", "num_chips": "chips", "mfu": "MFU"}
    solved = {names.get(name, name) for name in napkin.solved}
    open_text = {"days": "open: any split of the chip-hours", "chips": "open: any split of the chip-hours"}
    return tuple(
        (name, open_text.get(name, value) if value == UNKNOWN else f"{value}  (solved)" if name in solved else value)
        for name, value in shown.items()
    )


def _state_of(params: int, holdings: Sequence[Holding]) -> tuple[Block, ...]:
    """Whether the training state of the model fits, spread evenly over all chips."""
    if not holdings:
        return ()
    lines = [holdings[0].state.text]
    for holding in holdings:
        share = holding.share_needed(params)
        verdict = "fits" if share <= 1 else "does not fit"
        needed = holding.show(holding.bytes_needed(params))
        lines.append(f"{needed} of {holding.capacity_text} a chip, {holding.label}: {format_percent(share)}, {verdict}")
    return (Lines(tuple(lines), "training state, spread evenly over all chips, activations not counted"),)
