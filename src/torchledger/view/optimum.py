"""The screen of compute-optimal training: the chosen law's answer, and every other law beside it."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner.budget import Optimum
from torchledger.units import format_count, format_flops, format_number
from torchledger.view.screen import Block, Lines, Row, Table, assumed


def optimum_screen(chosen: Optimum, everybody: Sequence[Optimum], assumptions: Sequence[str]) -> tuple[Block, ...]:
    """Parameters and tokens of the chosen law, its arithmetic, and the table of all laws."""
    params, tokens = format_count(round(chosen.params)), format_count(round(chosen.tokens))
    answer = f"{params} parameters on {tokens} tokens are compute-optimal: {format_flops(chosen.flops)}"
    rows = (
        Row(
            (
                each.law.name,
                format_count(round(each.params)),
                format_count(round(each.tokens)),
                format_flops(each.flops),
                format_number(each.tokens_per_parameter),
                "" if each.loss is None else format_number(each.loss),
                each.law.source,
            ),
            mark="good" if each.law.name == chosen.law.name else "",
        )
        for each in everybody
    )
    return (
        Lines((answer,), mark="headline"),
        Lines(chosen.arithmetic, "arithmetic", "code"),
        Table(
            ("<law", "parameters", "tokens", "FLOPs", "tokens a parameter", "loss, nats", "<source"),
            tuple(rows),
            "by every law",
            optional=("source", "loss, nats"),
        ),
        *assumed(assumptions),
    )
