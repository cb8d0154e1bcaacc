"""The plan's screen: the answer in one line, its arithmetic, and what memory has to say."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner import Holding, Napkin
from torchledger.units import (
    UNKNOWN,
    format_bytes,
    format_bytes_decimal,
    format_count,
    format_flops,
    format_money,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.screen import Block, Facts, Lines, Row, Table, assumed


def napkin_screen(napkin: Napkin, chip_name: str, holdings: Sequence[Holding] = ()) -> tuple[Block, ...]:
    """The napkin's answer.

    Args:
        napkin: the answer.
        chip_name: what the chips are called.
        holdings: how the training state of that many chips may be held; none where their number is open.
    """
    return (
        Lines((headline(napkin, chip_name),), mark="headline"),
        Facts(_facts(napkin)),
        Lines(napkin.arithmetic, "arithmetic", "code"),
        *_state_of(napkin.params, holdings),
        *assumed(napkin.assumptions),
    )


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
        needed = _show_bytes(holding, -(-params * holding.state.total // holding.num_chips))
        lines.append(
            f"{needed} of {show_capacity(holding)} a chip, {holding.label}: {format_percent(share)}, {verdict}"
        )
    return (Lines(tuple(lines), "training state, spread evenly over all chips, activations not counted"),)


def show_capacity(holding: Holding) -> str:
    """A chip's bytes: decimal where they are what the label says, binary where a driver reported them."""
    return _show_bytes(holding, holding.bytes_per_chip)


def _show_bytes(holding: Holding, num_bytes: int) -> str:
    show = format_bytes_decimal if holding.label == "nominal" else format_bytes
    return show(num_bytes)


def holding_screen(
    holdings: Sequence[Holding], chip_name: str, assumptions: Sequence[str], chosen: Holding
) -> tuple[Block, ...]:
    """The largest model whose training state fits: the chosen precision as the answer, the others beside it."""
    labels = tuple(dict.fromkeys(holding.label for holding in holdings))
    precisions = tuple(dict.fromkeys(holding.state.name for holding in holdings))
    rows = []
    for name in precisions:
        mine = {holding.label: holding for holding in holdings if holding.state.name == name}
        state = next(iter(mine.values())).state
        parts = "+".join(str(n) for n in (state.weight, state.gradient, state.master, state.moments) if n)
        rows.append(
            Row(
                (
                    name,
                    f"{parts} = {state.total}",
                    *(format_count(mine[label].params) if label in mine else UNKNOWN for label in labels),
                    state.note,
                ),
                mark="good" if name == chosen.state.name else "",
            )
        )
    answer = (
        f"{format_count(chosen.params)} parameters are the most that {group_digits(chosen.num_chips)} ×"
        f" {chip_name} can hold with {chosen.state.total} bytes each ({chosen.label} bytes)"
    )
    capacities = {h.label: f"{h.label} {show_capacity(h)}" for h in holdings}
    return (
        Lines((answer,), mark="headline"),
        Lines((chosen.state.text, chosen.arithmetic), "arithmetic", "code"),
        Table(
            ("<precision", "bytes a parameter", *(capacities[label] for label in labels), "<what it means"),
            tuple(rows),
            "largest number of parameters",
        ),
        *assumed(assumptions),
    )
