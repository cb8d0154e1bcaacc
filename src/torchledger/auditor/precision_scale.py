"""The loss scale that FP16 needs: as large as no gradient overflows with, and what it saves of the small ones."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from torchledger.auditor.precision_census import Census, Lost

__all__ = ["LossScale", "loss_scale", "lost_at", "tried"]

_NOTHING = Lost()
_STEP = 4  # powers of two between two scales of the table
#: A scale beyond the largest that `torch.amp.GradScaler` reaches by doubling is of no use.
_LARGEST = 100


@dataclass(frozen=True, slots=True)
class LossScale:
    """The scale of a step, and what it changes.

    Attributes:
        exponent: the scale is 2^exponent, the largest power of two with which no gradient is beyond FP16; nothing where
            all gradients are 0.
        unscaled: share of gradients that are 0 in FP16 without it.
        scaled: the same share with it.
    """

    exponent: int | None
    unscaled: float
    scaled: float

    @property
    def value(self) -> float | None:
        """The scale."""
        return None if self.exponent is None else 2.0**self.exponent


def loss_scale(gradients: Iterable[Census]) -> LossScale:
    """The largest loss scale for these gradients, of weights and of activations.

    Source: Micikevicius et al., Mixed Precision Training, arXiv:1710.03740, section 3.2.
    """
    several = tuple(gradients)
    shifts = [shift for each in several if (shift := each.largest_shift("FP16")) is not None]
    if not shifts:
        return LossScale(None, 0.0, 0.0)
    exponent = min(*shifts, _LARGEST)
    return LossScale(exponent, lost_at(several, 0).share("to_zero"), lost_at(several, exponent).share("to_zero"))


def lost_at(gradients: Iterable[Census], exponent: int) -> Lost:
    """What FP16 loses of gradients times 2^exponent."""
    return sum((each.lost("FP16", shift=exponent) for each in gradients), _NOTHING)


def tried(gradients: Iterable[Census], best: int) -> list[tuple[int, Lost, bool]]:
    """Scales from 1 up to beyond the best, each with what is lost and whether a gradient overflows."""
    several = tuple(gradients)
    exponents = sorted({*range(0, best + 2 * _STEP, _STEP), best, best + 1})
    return [(e, lost_at(several, e), any(each.overflows_at("FP16", e) for each in several)) for e in exponents]
