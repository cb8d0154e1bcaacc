"""`Difference`: one quantity predicted, measured and held against its tolerance."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of the closing table.

    Attributes:
        quantity: the field's word with its unit (`step_flops`, `peak_tensor_bytes`, `step_s`, `mfu`).
        unit: `FLOP`, `B`, `s`, `1`, `nat`.
        predicted: the figure told before the run; `None` is unknown.
        measured: the figure read off the run; `None` is not measured.
        tolerance: largest relative difference that passes (0 is exact); `None` is reported without a target.
        note: by which convention and from which source, or why the two differ.
    """

    quantity: str
    unit: str
    predicted: float | None
    measured: float | None
    tolerance: float | None = None
    note: str = ""

    @property
    def difference(self) -> float | None:
        """Measured minus predicted, in the quantity's unit; `None` where either is unknown."""
        return None if self.predicted is None or self.measured is None else self.measured - self.predicted

    @property
    def relative(self) -> float | None:
        """The difference over the measured value; `None` where unknown, infinite where only the measured is zero.

        >>> Difference("step_s", "s", 1.1, 1.0).relative
        -0.10000000000000009
        """
        if self.predicted is None or self.measured is None:
            return None
        gap = self.measured - self.predicted
        if gap == 0:
            return 0.0
        return gap / self.measured if self.measured != 0 else float("inf")

    @property
    def within(self) -> bool | None:
        """Whether it is inside its tolerance; `None` without a tolerance. An unknown side is never inside.

        >>> Difference("step_flops", "FLOP", 100, 100, tolerance=0).within
        True
        >>> Difference("step_flops", "FLOP", 100, None, tolerance=0).within
        False
        """
        if self.tolerance is None:
            return None
        relative = self.relative
        return relative is not None and abs(relative) <= self.tolerance


def beyond(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Those that are outside their tolerance, for which `compare` exits 4."""
    return tuple(difference for difference in differences if difference.within is False)
