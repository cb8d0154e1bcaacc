"""Pieces under the two roofs of a chip: whether its arithmetic or its memory sets their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torchledger.ledger import CONTRACTIONS
from torchledger.machine import Chip
from torchledger.ops.piece import Piece
from torchledger.ops.roofline import Bound, Roof, balance, roof


@dataclass(frozen=True, slots=True)
class Roofed:
    """Kernels one after the other on a chip, by its data sheet.

    Attributes:
        chip: its name.
        ridge: FLOPs a byte at which its two roofs meet, at the rate of the number format; nothing without a known
            bandwidth.
        roofs: of each piece.
    """

    chip: str
    ridge: float | None
    roofs: tuple[Roof, ...]

    @property
    def seconds(self) -> float | None:
        """No run is faster: the longer of arithmetic and memory of each kernel, added up."""
        seconds = [each.seconds for each in self.roofs]
        return None if any(each is None for each in seconds) else sum(each for each in seconds if each is not None)

    @property
    def bound(self) -> Bound:
        """What takes most of these seconds; `memory` where nothing is computed."""
        if self.seconds is None:
            return "unknown"
        by_compute = sum(each.seconds or 0 for each in self.roofs if each.bound == "compute")
        return "compute" if by_compute > self.seconds / 2 else "memory"


def roofed(pieces: Sequence[Piece], chip: Chip, number_format: str) -> Roofed:
    """Pieces on a chip; work that is no contraction runs beside the matrix units and is bound by its bytes.

    >>> from torchledger.machine import get
    >>> from torchledger.ops import matmul
    >>> [roofed(matmul(1, n, n, n, element_bytes=2), get("h100"), "bf16").bound for n in (256, 4096)]
    ['memory', 'compute']

    Raises:
        NoPeak: something is contracted, and the chip cannot run that format.
    """
    contracts = any(piece.kind in CONTRACTIONS for piece in pieces)
    ridge = balance(chip, number_format) if contracts else None
    lines = [piece.line("", number_format=number_format) for piece in pieces]
    return Roofed(chip.name, ridge, tuple(roof(line, chip) for line in lines))
