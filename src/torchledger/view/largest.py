"""The screens of memory alone: the largest model that chips hold, and the fewest chips that hold a model."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner import Holding
from torchledger.units import UNKNOWN, format_count, format_number, group_digits
from torchledger.view.screen import Block, Lines, Row, Table, assumed


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
        parts = "+".join(format_number(n, 4) for n in (state.weight, state.gradient, state.master, state.moments) if n)
        rows.append(
            Row(
                (
                    name,
                    f"{parts} = {format_number(state.total, 4)}",
                    *(format_count(mine[label].params) if label in mine else UNKNOWN for label in labels),
                    state.note,
                ),
                mark="good" if name == chosen.state.name else "",
            )
        )
    answer = (
        f"{format_count(chosen.params)} parameters are the most that {group_digits(chosen.num_chips)} ×"
        f" {chip_name} can hold with {format_number(chosen.state.total, 4)} bytes each ({chosen.label} bytes)"
    )
    capacities = {h.label: f"{h.label} {h.capacity_text}" for h in holdings}
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


def chips_screen(
    holdings: Sequence[Holding], params: float, chip_name: str, assumptions: Sequence[str], chosen: Holding
) -> tuple[Block, ...]:
    """The fewest chips that hold the training of a model, by the chosen precision and by the others."""
    labels = tuple(dict.fromkeys(holding.label for holding in holdings))
    rows = []
    for name in dict.fromkeys(holding.state.name for holding in holdings):
        mine = {holding.label: holding for holding in holdings if holding.state.name == name}
        state = next(iter(mine.values())).state
        numbers = (_chips(mine[label].chips_needed(params)) if label in mine else UNKNOWN for label in labels)
        cells = (name, format_number(state.total, 4), *numbers, state.note)
        rows.append(Row(cells, mark="good" if name == chosen.state.name else ""))
    number = chosen.chips_needed(params)
    model = f"{format_count(params)} parameters"
    answer = (
        f"no number of {chip_name} holds {model}"
        if number is None
        else f"{group_digits(number)} × {chip_name} are the fewest that hold {model} ({chosen.label} bytes)"
    )
    capacities = {h.label: f"chips of {h.label} {h.capacity_text}" for h in holdings}
    return (
        Lines((answer,), mark="headline"),
        Lines((chosen.state.text, _division(chosen, params, number)), "arithmetic", "code"),
        Table(
            ("<precision", "bytes a parameter", *(capacities[label] for label in labels), "<what it means"),
            tuple(rows),
            "fewest chips",
        ),
        *assumed(assumptions),
    )


def _division(chosen: Holding, params: float, number: int | None) -> str:
    """Bytes of the whole state over bytes of a chip, and what of both is not spread."""
    parts = chosen.state.on_a_chip
    spread, whole = sum(parts[: chosen.shard_level]), sum(parts[chosen.shard_level :])
    fixed = whole * params + (0.0 if chosen.activations is None else chosen.activations.num_bytes(params))
    room = chosen.capacity_text if not fixed else f"({chosen.capacity_text} - {chosen.show(fixed)} on every chip)"
    return f"chips = {format_count(params)} · {format_number(spread, 4)} bytes / {room} = {_chips(number)}"


def _chips(number: int | None) -> str:
    return "none" if number is None else group_digits(number)
