"""The pipeline's step in text: one row a stage, one sign a piece of time, as papers draw their schedules.

A digit is the forward pass of a micro-batch (the last digit of its number), a letter its backward pass (`a` for 0), so
that the order can be read off. A step of many micro-batches is drawn at its beginning and its end, where the bubble is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from torchledger.planner.outcome import Plan, Slot
from torchledger.units import format_duration
from torchledger.view.screen import Lines

_DIGITS = "0123456789"
_LETTERS = "abcdefghij"
_SIGNS = {"weight gradient": "w", "gather": "g", "reduce": "r", "optimizer": "o", "to host": "h", "from host": "h"}
_WAITS = "."
_GAP = "  ~  "
#: Signs of a row where there is room.
WIDEST = 92
#: Rows that are drawn; of a longer pipeline the first and the last half of them.
_MOST_ROWS = 16
_Rows: TypeAlias = Sequence[tuple[str, tuple[Slot, ...]]]


def schedule_lines(plan: Plan, width: int = WIDEST) -> tuple[Lines, ...]:
    """The time line as a block; nothing where there is no pipeline.

    Args:
        plan: the plan.
        width: signs of a row, the stage's number included.
    """
    rows = _chosen([(str(each.stage.index), each.time_line) for each in plan.stages])
    shortest = _shortest_forward(rows)
    if len(plan.stages) < 2 or shortest == 0:
        return ()
    label = max(len(name) for name, _ in rows)
    columns = width - label - 2
    sign_s = shortest
    needed = round(plan.step_s / sign_s)
    if needed <= columns:
        sign_s = plan.step_s / columns
        drawn = [_draw(slots, 0.0, sign_s, columns) for _, slots in rows]
    else:
        half = (columns - len(_GAP)) // 2
        start_s = plan.step_s - half * sign_s
        drawn = [_draw(slots, 0.0, sign_s, half) + _GAP + _draw(slots, start_s, sign_s, half) for _, slots in rows]
    lines = [f"{name.rjust(label)}  {text}" for (name, _), text in zip(rows, drawn, strict=True)]
    if len(rows) < len(plan.stages):
        lines.insert(_MOST_ROWS // 2, f"{'~'.rjust(label)}  ({len(plan.stages) - len(rows)} stages left out)")
    title = f"time line by stage, {format_duration(sign_s)} a sign"
    return (Lines(tuple(lines), title, "code"), Lines((_legend(rows),), mark="note"))


def _chosen(rows: _Rows) -> _Rows:
    half = _MOST_ROWS // 2
    return rows if len(rows) <= _MOST_ROWS else [*rows[:half], *rows[-half:]]


def _shortest_forward(rows: _Rows) -> float:
    """The shortest forward pass is one sign long, so that none vanishes; one far below the usual length may."""
    lengths = sorted(slot.end_s - slot.start_s for _, slots in rows for slot in slots if slot.what == "forward")
    return max(lengths[0], lengths[len(lengths) // 2] / 3) if lengths else 0.0


def _draw(slots: Sequence[Slot], start_s: float, sign_s: float, columns: int) -> str:
    """Each sign is what runs in the middle of its piece of time; what is sent beside the computing is not drawn."""
    signs = [_WAITS] * columns
    for slot in slots:
        if slot.what == "send":
            continue
        first = round((slot.start_s - start_s) / sign_s)
        last = round((slot.end_s - start_s) / sign_s)
        for column in range(max(0, first), min(columns, last)):
            signs[column] = _sign(slot)
    return "".join(signs)


def _sign(slot: Slot) -> str:
    match slot.what:
        case "forward":
            return _DIGITS[slot.micro_batch % 10]
        case "backward":
            return _LETTERS[slot.micro_batch % 10]
    return _SIGNS.get(slot.what, "?")


def _legend(rows: _Rows) -> str:
    there = {slot.what for _, slots in rows for slot in slots}
    told = ["0-9 forward pass of a micro-batch (last digit)", "a-j its backward pass"]
    names = {"weight gradient": "w weight gradients", "gather": "g gathering of weights"}
    names |= {"reduce": "r reduction of gradients", "to host": "h copies to and from the host"}
    names |= {"optimizer": "o optimizer"}
    return "; ".join((*told, *(text for what, text in names.items() if what in there), f"{_WAITS} waits"))
