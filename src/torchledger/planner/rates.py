"""`Rates`: how fast a machine computes and moves bytes, as curves over the size of one operation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeAlias

from torchledger.machine import Chip
from torchledger.machine.profile import MachineProfile

#: (size of one operation, rate) in rising size: FLOPs and FLOP/s, or bytes and bytes per second.
Curve: TypeAlias = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """How fast a machine is.

    Attributes:
        flops_per_s: for every number format, the rate of a contraction over the FLOPs of one.
        bytes_per_s: the rate of reading and writing over the bytes of one operation.
        in_place_bytes_per_s: the rate of updating memory in place, as an optimizer does; nothing takes the curve.
        operation_s: seconds that starting any operation takes.
        transcendental_s: seconds that one transcendental operation takes beyond moving its bytes.
        source: where the figures come from, printed with the answer.
    """

    flops_per_s: Mapping[str, Curve]
    bytes_per_s: Curve
    in_place_bytes_per_s: float | None = None
    operation_s: float = 0.0
    transcendental_s: float = 0.0
    source: str = ""
    assumptions: tuple[str, ...] = field(default=())

    @classmethod
    def measured(cls, profile: MachineProfile) -> Rates:
        """The rates that this machine was measured to deliver."""
        return cls(
            flops_per_s=profile.matmul,
            bytes_per_s=profile.bandwidth,
            in_place_bytes_per_s=profile.in_place_bytes_per_s or None,
            operation_s=profile.operation_s,
            transcendental_s=profile.transcendental_s,
            source=f"measured on {profile.device}, {profile.num_threads} threads, {profile.measured_at}",
        )

    @classmethod
    def data_sheet(cls, chip: Chip) -> Rates:
        """The rates that the data sheet promises: no efficiency, no overhead, so a lower bound on time."""
        bandwidth = chip.memory_bandwidth
        return cls(
            flops_per_s={peak.number_format: ((1.0, peak.dense_flops_per_s),) for peak in chip.peaks},
            bytes_per_s=() if bandwidth is None else ((1.0, bandwidth),),
            source=f"data sheet of {chip.name} ({chip.date}): dense peaks, a lower bound on time",
        )


def at(curve: Curve, size: float) -> float | None:
    """The rate at `size`: straight lines between the points on logarithmic axes, flat beyond the ends.

    `None` where the curve is empty.

    >>> round(at(((1, 10.0), (100, 1000.0)), 10))
    100
    >>> at(((1, 10.0), (100, 1000.0)), 5000)
    1000.0
    """
    if not curve:
        return None
    if size <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in pairwise(curve):
        if size <= x1:
            share = math.log(size / x0) / math.log(x1 / x0)
            rate: float = y0 * (y1 / y0) ** share
            return rate
    return curve[-1][1]
