"""The screen of a calibration: how far predictions were off before and after, and what the constants became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from torchledger.planner.calibration_file import constant_range
from torchledger.planner.constants import Constants
from torchledger.planner.fitted import Fitted
from torchledger.units import format_duration, format_number, format_percent
from torchledger.view.screen import Block, Lines, Row, Table, assumed


@dataclass(frozen=True, slots=True)
class RowFit:
    """One measured row beside its predictions.

    Attributes:
        name: which row.
        measured_s: seconds of its step.
        before_s: predicted with the default constants.
        constants_s: predicted with the fitted constants alone.
        after_s: expected after the fit: with what the constants left over of rows like it, this one included.
        interval_s: where the fitted prediction puts a measured step with 90 % probability.
    """

    name: str
    measured_s: float
    before_s: float
    constants_s: float
    after_s: float
    interval_s: tuple[float, float]

    @property
    def is_inside(self) -> bool:
        """Whether the measured step lies in the interval."""
        low, high = self.interval_s
        return low <= self.measured_s <= high


def calibration_screen(
    fitted: Fitted,
    start: Constants,
    rows: Sequence[RowFit],
    *,
    saved: str,
    assumptions: Sequence[str] = (),
    suspicious: Sequence[str] = (),
) -> tuple[Block, ...]:
    """What the calibration did.

    Args:
        fitted: the fitted constants.
        start: those before.
        rows: every row.
        saved: where the constants were written.
        assumptions: what was assumed of the rows.
        suspicious: rows that are off by so much that the table is doubted, one line each.
    """
    doubt = f"{len(suspicious)} of {len(rows)} rows are suspicious: correct or leave them out, and fit again"
    inside = sum(row.is_inside for row in rows)
    note = f"{inside} of {len(rows)} measured steps lie in their 90 % interval"
    if fitted.rest is not None:
        note += "\nafter: the step that a plan expects, with what rows like it left over of the fitted constants"
    return (
        Lines((calibration_headline(fitted, mean_after(rows)),), mark="headline"),
        *((Lines(tuple(suspicious), doubt, "warning"),) if suspicious else ()),
        Lines((f"saved in {saved}; `torchledger plan MODEL ... --constants {saved}` uses them",)),
        _constants(fitted, start),
        _rows(rows, note),
        *assumed(assumptions),
    )


def suggestion_screen(names: Sequence[str], num_rows: int) -> tuple[Block, ...]:
    """Which rows to measure, the most telling first.

    Args:
        names: of those rows.
        num_rows: how many there were to choose from.
    """
    first = f"measure these {len(names)} of {num_rows} runs; they leave the others least uncertain"
    return (
        Lines((first,), mark="headline"),
        Table(("<run",), tuple(Row((name,)) for name in names), "most telling first"),
    )


def mean_after(rows: Sequence[RowFit]) -> float:
    """Mean absolute relative error of what is expected of each row after the fit."""
    return fmean(abs(row.after_s / row.measured_s - 1) for row in rows)


def calibration_headline(fitted: Fitted, after: float) -> str:
    """Errors before and after in one sentence.

    Args:
        fitted: the fitted constants; what is off with them alone, and where a row is foretold by the others.
        after: the mean error of what is expected of the rows, that of the column `after`.
    """
    rows = f"{fitted.num_rows} row{'s' if fitted.num_rows > 1 else ''}"
    if fitted.is_default:
        return (
            f"{rows}: the default constants are kept, mean absolute error of a step {format_percent(fitted.before)};"
            f" each row foretold by the others is {format_percent(fitted.held_out or 0.0)} off"
        )
    foretold = "" if fitted.held_out is None else f"; {format_percent(fitted.held_out)} where the others foretell each"
    return (
        f"{rows} fitted: mean absolute error of a step {format_percent(fitted.before)} before,"
        f" {format_percent(after)} after ({format_percent(fitted.after)} by the constants alone){foretold}"
    )


def _constants(fitted: Fitted, start: Constants) -> Table | Lines:
    if fitted.is_default:
        return Lines(("none is fitted; the rows tell how wide the intervals are",), "constants")
    rows = []
    for name in fitted.names:
        low, high = constant_range(fitted, name)
        before, after = getattr(start, name), getattr(fitted.constants, name)
        rows.append(Row((name, *map(format_number, (before, after, low, high)))))
    columns = ("<constant", "before", "fitted", "90 % from", "to")
    return Table(columns, tuple(rows), "constants", optional=("before",))


def _rows(rows: Sequence[RowFit], note: str) -> Table:
    shown = (
        Row(
            (
                row.name,
                format_duration(row.measured_s),
                format_duration(row.before_s),
                _error(row.before_s, row.measured_s),
                format_duration(row.after_s),
                _error(row.after_s, row.measured_s),
                " to ".join(map(format_duration, row.interval_s)),
            ),
            mark="" if row.is_inside else "bad",
        )
        for row in rows
    )
    columns = ("<row", "measured", "before", "error", "after", "error ", "90 % interval")
    return Table(columns, tuple(shown), "rows", note, optional=("before", "90 % interval", "error"))


def _error(predicted_s: float, measured_s: float) -> str:
    error = predicted_s / measured_s - 1
    return f"{'+' if error > 0 else ''}{format_percent(error)}"
