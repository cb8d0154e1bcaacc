"""The roofline of one line: whether a chip's arithmetic or its memory sets the time.

Williams, Waterman, Patterson, CACM 52(4), 2009, doi:10.1145/1498765.1498785.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from torchledger.ledger import CONTRACTIONS, Amount, Line, Work
from torchledger.machine import Chip, NoPeak

Bound: TypeAlias = Literal["compute", "memory", "unknown"]


@dataclass(frozen=True, slots=True)
class Roof:
    """One line under a chip's two roofs.

    Attributes:
        compute_s: seconds that its FLOPs take at the dense peak of its format; `None` is unknown.
        memory_s: seconds that its bytes take at the memory's bandwidth; `None` is unknown.
    """

    compute_s: float | None
    memory_s: float | None

    @property
    def bound(self) -> Bound:
        """Which of them is the longer one."""
        if self.compute_s is None or self.memory_s is None:
            return "unknown"
        return "compute" if self.compute_s > self.memory_s else "memory"

    @property
    def seconds(self) -> float | None:
        """The longer one: no kernel is faster."""
        if self.compute_s is None or self.memory_s is None:
            return None
        return max(self.compute_s, self.memory_s)


def intensity(work: Work) -> float | None:
    """Arithmetic intensity: FLOPs executed over bytes moved. `None` where one is unknown or nothing is moved.

    >>> intensity(Work(flops_executed=1024, bytes_read=96, bytes_written=32))
    8.0
    """
    moved = work.bytes_moved
    return None if work.flops_executed is None or not moved else work.flops_executed / moved


def demand(line: Line) -> tuple[Amount, Amount] | None:
    """FLOPs that run at the matmul peak and bytes moved by one time of a line; `None` where it does not know.

    What is no contraction computes beside the matrix units, and faster than its bytes arrive: its FLOPs are none here.
    """
    work = line.work
    flops = work.flops_executed if line.kind in CONTRACTIONS else 0
    moved = work.bytes_moved
    return None if line.kind == "unknown" or flops is None or moved is None else (flops, moved)


def roof(line: Line, chip: Chip) -> Roof:
    """All times of a line on a chip, by its data sheet: dense peak of the line's format, bandwidth of the memory."""
    needs = demand(line)
    if needs is None:
        return Roof(None, None)
    flops, moved = needs
    return Roof(
        _seconds(flops, _peak(line, chip) if flops else None, line), _seconds(moved, chip.memory_bandwidth, line)
    )


def balance(chip: Chip, number_format: str) -> float | None:
    """The intensity at which a chip's two roofs meet, in FLOPs a byte; `None` without a known bandwidth.

    Raises:
        NoPeak: the chip cannot run that format.
    """
    peak = chip.peak(number_format)
    return None if chip.memory_bandwidth is None else peak / chip.memory_bandwidth


def _peak(line: Line, chip: Chip) -> float | None:
    try:
        return chip.peak(line.number_format)
    except NoPeak:
        return None


def _seconds(amount: Amount, rate: float | None, line: Line) -> float | None:
    if not amount:
        return 0.0
    seconds: float | None = None if rate is None else amount * line.times / rate
    return seconds
