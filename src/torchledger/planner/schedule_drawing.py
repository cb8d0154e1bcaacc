"""A schedule as rows of text, one per rank."""

from __future__ import annotations

from torchledger.planner.outcome import Slot
from torchledger.planner.simulation import Simulation

_LETTERS = {"forward": "F", "backward": "B", "weight gradient": "W"}


def drawing(simulation: Simulation, unit_s: float = 1.0) -> tuple[str, ...]:
    r"""A row per rank, a column per unit of time: `F3` is the forward pass of micro-batch 3, `B` backward, `W` weights.

    A dash fills a piece that takes more than one unit, a dot is a bubble, and every prime behind a number is one chunk
    further. Sends are not drawn.

    Args:
        simulation: a step.
        unit_s: seconds of a column; pieces are rounded to whole columns.

    >>> from torchledger.planner.schedule_cost import ChunkCost
    >>> from torchledger.planner.simulation import simulate
    >>> print(*drawing(simulate("1f1b", ((ChunkCost(1, 1, 1),),) * 2, 2)), sep="\n")
    0  F0  F1  .   .   B0----- .   B1-----
    1  .   F0  B0----- F1  B1-----
    """
    lines = [[slot for slot in line if slot.what in _LETTERS] for line in simulation.time_lines]
    width = 1 + max(3, *(len(_label(slot)) for line in lines for slot in line))
    number = len(str(len(lines) - 1))
    return tuple(f"{rank:>{number}}  {_row(line, width, unit_s)}".rstrip() for rank, line in enumerate(lines))


def _label(slot: Slot) -> str:
    return f"{_LETTERS[slot.what]}{slot.micro_batch}" + "'" * slot.chunk


def _row(line: list[Slot], width: int, unit_s: float) -> str:
    text, now = "", 0
    for slot in line:
        start, end = round(slot.start_s / unit_s), round(slot.end_s / unit_s)
        text += ".".ljust(width) * (start - now)
        if end > start:
            size = (end - start) * width
            text += _label(slot).ljust(size - 1, "-" if end - start > 1 else " ")[: size - 1] + " "
        now = max(now, end)
    return text
