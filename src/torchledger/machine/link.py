"""`Link`: a road for bytes between chips, with the rate of one direction."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Link:
    """What joins a chip to others: NVLink, Infinity Fabric, PCIe, a network.

    Vendors mostly print both directions together; the catalog holds one direction.

    Attributes:
        name: as the row calls it, for example "NVLink 4".
        bytes_per_s_per_direction: what one chip can send while it receives as much, all its lanes together.
        bytes_per_s_per_peer: what one chip can send to *one* other. On a point-to-point mesh (AMD's Infinity Fabric)
            it is far below the total, so that a pair of chips is slow where all eight are fast. None: not stated.
        peer_to_peer: False where chips must go through host memory; None: not stated.
        measured_share: of the rate of one direction, what collectives were measured to reach over this very link of a
            cluster. None: nobody measured it, and a model takes what links of its kind reach.
        adds_up: its switches add up what passes them in an all-reduce (SHARP on InfiniBand), and it is turned on.
        latency_s: seconds before the first byte. None: unknown, and it is unknown unless a row has a source for it.
    """

    name: str
    bytes_per_s_per_direction: float
    bytes_per_s_per_peer: float | None = None
    peer_to_peer: bool | None = None
    latency_s: float | None = None
    measured_share: float | None = None
    adds_up: bool = False
