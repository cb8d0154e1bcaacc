"""Which of two neighbours a number becomes: the rounding modes, on integers."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

from torchledger.formats.format import FormatError

Rounding = Literal["nearest-even", "nearest-away", "toward-zero", "up", "down", "stochastic"]

ROUNDINGS: tuple[Rounding, ...] = get_args(Rounding)


class Rational(Protocol):
    """A number that knows itself as a ratio of integers: int, float, `fractions.Fraction`, `decimal.Decimal`."""

    def as_integer_ratio(self) -> tuple[int, int]:
        """Numerator and positive denominator."""


def checked(rounding: Rounding, random: Rational | None) -> tuple[Rounding, tuple[int, int]]:
    """The mode, and the random number as a ratio.

    Raises:
        FormatError: there is no such mode; or `stochastic` has no random number of [0, 1), or another mode has one.
    """
    if rounding not in ROUNDINGS:
        raise FormatError(f"no rounding is called {rounding!r}; known: {', '.join(ROUNDINGS)}")
    if rounding != "stochastic":
        if random is not None:
            raise FormatError(f"a random number is for stochastic rounding, not for {rounding}")
        return rounding, (0, 1)
    if random is None:
        raise FormatError("stochastic rounding needs a random number of at least 0 and below 1")
    try:
        numerator, denominator = random.as_integer_ratio()
    except (OverflowError, ValueError):
        numerator, denominator = -1, 1  # infinity and NaN are no ratio
    if not 0 <= numerator < denominator:
        raise FormatError(f"stochastic rounding needs a random number of at least 0 and below 1, not {random}")
    return rounding, (numerator, denominator)


def rounds_away(
    rest: int, whole: int, rounding: Rounding, random: tuple[int, int], *, is_odd: bool, is_negative: bool
) -> bool:
    """Whether a magnitude of some units and rest / whole of one more becomes a unit more (IEEE 754-2019, section 4.3).

    Args:
        rest: numerator of the fraction of a unit, at least 0 and below `whole`.
        whole: its denominator.
        rounding: the mode.
        random: a number of [0, 1) as a ratio, for `stochastic`: up if it is below rest / whole, so with that
            probability if it is drawn evenly (Gupta et al., Deep Learning with Limited Numerical Precision, 2015).
        is_odd: whether the number of units is odd.
        is_negative: whether the number is below zero.
    """
    match rounding:
        case "nearest-even":
            return 2 * rest > whole or (2 * rest == whole and is_odd)
        case "nearest-away":
            return 2 * rest >= whole
        case "toward-zero":
            return False
        case "up":
            return rest > 0 and not is_negative
        case "down":
            return rest > 0 and is_negative
        case "stochastic":
            return random[0] * whole < rest * random[1]
