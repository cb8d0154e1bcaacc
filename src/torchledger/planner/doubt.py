"""Measured rows that are doubted before constants are fitted to them, and those that cannot have been measured."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.planner.measured import MeasuredRow
from torchledger.planner.rules import refusals
from torchledger.units import format_duration, format_number

__all__ = ["impossible", "suspicious"]

#: Farther off than so many times a wrong unit, column or layout is likelier than a slow cluster.
_MOST_TIMES_OFF = 10.0


def suspicious(rows: Sequence[tuple[str, float, float]]) -> tuple[str, ...]:
    """Rows that the default constants predict more than 10 times off, each with what to look at.

    Args:
        rows: each row's place, its measured and its predicted seconds.

    >>> suspicious([("m.csv:2", 1.0, 1.2), ("m.csv:3", 0.001, 1.2)])
    ('m.csv:3: 1.2 s predicted, 1 ms measured, 1,200 times less: look at its unit, its number of chips and its layout',)
    """
    return tuple(
        f"{place}: {format_duration(predicted)} predicted, {format_duration(measured)} measured,"
        f" {_times(predicted / measured)}: look at its unit, its number of chips and its layout"
        for place, measured, predicted in rows
        if not 1 / _MOST_TIMES_OFF <= predicted / measured <= _MOST_TIMES_OFF
    )


def impossible(rows: Sequence[MeasuredRow]) -> tuple[str, ...]:
    """What rules say against rows that the planner would refuse to plan, one line for each rule that a row breaks.

    Args:
        rows: measured, or planned to be.
    """
    return tuple(
        f"{row.place}: {broken.text}"
        for row in rows
        for broken in refusals(row.spec, row.recipe, row.strategy, row.cluster)
    )


def _times(ratio: float) -> str:
    return f"{format_number(max(ratio, 1 / ratio))} times {'less' if ratio > 1 else 'more'}"
