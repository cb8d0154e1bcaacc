"""The closing table: predicted, measured, and where the two differ."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from torchledger.ledger import Difference
from torchledger.units import (
    UNKNOWN,
    format_bytes,
    format_duration,
    format_flops,
    format_flops_per_s,
    format_number,
    format_percent,
    group_digits,
)
from torchledger.view.screen import Row, Table

_SHOW: Mapping[str, Callable[[float | None], str]] = {
    "FLOP": format_flops,
    "FLOP/s": format_flops_per_s,
    "B": format_bytes,
    "s": format_duration,
    "nat": lambda x: UNKNOWN if x is None else f"{x:.4f} nat",
    "1": format_number,
}


def closing_table(differences: Iterable[Difference], *, sides: tuple[str, str] = ("predicted", "measured")) -> Table:
    """One row a quantity; a row beyond its tolerance is marked and says `over`."""
    rows = tuple(_row(each) for each in differences)
    columns = ("<quantity", *sides, "difference", "relative", "tolerance", "<", "<note")
    return Table(columns, rows, " against ".join(sides))


def show_amount(value: float | None, unit: str) -> str:
    """A value in its unit, to three figures; shares as percent where the unit says so."""
    show = _SHOW.get(unit)
    if show is not None:
        return show(value)
    return UNKNOWN if value is None else f"{format_number(value)} {unit}"


def _row(each: Difference) -> Row:
    shown = [show_amount(value, each.unit) for value in (each.predicted, each.measured, each.difference)]
    if each.quantity.endswith("mfu"):
        # a difference of two shares is in points: percent would say a share of one of them
        points = UNKNOWN if each.difference is None else f"{format_number(100 * each.difference)} points"
        shown = [format_percent(each.predicted), format_percent(each.measured), points]
    if each.unit in {"FLOP", "B"} and each.relative and abs(each.relative) < 0.005:
        # two whole amounts that three figures cannot tell apart are shown to the last one
        shown = [group_digits(value) for value in (each.predicted, each.measured, each.difference)]
    relative = UNKNOWN if each.relative is None else format_percent(each.relative)
    tolerance = "" if each.tolerance is None else ("exact" if each.tolerance == 0 else format_percent(each.tolerance))
    verdict = {True: "ok", False: "over", None: ""}[each.within]
    mark = {True: "good", False: "bad", None: ""}[each.within]
    return Row((each.quantity, *shown, relative, tolerance, verdict, each.note), mark=mark)  # type: ignore[arg-type]
