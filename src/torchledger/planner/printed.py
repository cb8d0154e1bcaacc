"""A figure as it was printed: its value, and how far its rounding leaves it open."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torchledger.planner.errors import PlanError

_NUMBER = re.compile(r"([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(\.[0-9]*)?(?:[eE]([+-]?[0-9]+))?\s*(%|k|K|M|B|T|P)?")
#: A comma among digits, where three digits are not grouped: decimals as some languages write them.
_COMMA = re.compile(r"[0-9.]+(,[0-9.]*)+([eE][+-]?[0-9]+)?\s*(%|[a-zA-Z])?")
#: What is read lies between one over this and this: products of several such figures are floats still.
_LARGEST = 1e40
_SCALE = {None: 0, "k": 3, "K": 3, "M": 6, "B": 9, "T": 12, "P": 15, "%": -2}


@dataclass(frozen=True, slots=True)
class Printed:
    """A printed figure.

    Attributes:
        value: what it says.
        half: half a unit of its last digit: the true value lies within this of it.
        text: as it was written.
    """

    value: float
    half: float
    text: str = ""

    @property
    def relative(self) -> float:
        """The rounding as a share of the value."""
        return self.half / self.value

    def is_reproduced_by(self, value: float, relative: float = 0.0) -> bool:
        """Whether `value`, itself known to within the share `relative`, can have been printed so.

        >>> read_printed("66%").is_reproduced_by(0.6649), read_printed("66%").is_reproduced_by(0.67)
        (True, False)
        """
        return abs(value - self.value) <= self.half * (1 + 1e-9) + value * relative

    def times(self, factor: float) -> Printed:
        """The same figure in another unit."""
        return Printed(self.value * factor, self.half * factor, self.text)


def read_printed(text: str) -> Printed:
    """Read a figure with the precision that its digits claim; zeros at the end of a whole number are taken as digits.

    Raises:
        PlanError: it is no number above zero, one that no machine has, or has a comma that groups no three digits.

    >>> read_printed("66.0%"), read_printed("238.3k").value
    (Printed(value=0.66, half=0.0005, text='66.0%'), 238300.0)
    """
    match = _NUMBER.fullmatch(text.strip())
    if match is None and _COMMA.fullmatch(text.strip()):
        raise PlanError(f"{text!r} has a comma that groups no three digits; write a point for decimals: 218.4, 30.8%")
    if match is None:
        raise PlanError(f"{text!r} is no printed figure; write it as it stands there: 0.4125, 41.3%, 6,159.4 or 238.3k")
    whole, fraction, exponent, unit = match.groups()
    digits = whole.replace(",", "") + (fraction or "").lstrip(".")
    power = int(exponent or 0) + _SCALE[unit] - len((fraction or ".")[1:])
    value = float(f"{digits}e{power}")
    if value <= 0:
        raise PlanError(f"{text!r} is not above zero")
    if not 1 / _LARGEST <= value <= _LARGEST:
        raise PlanError(f"{text!r} is no figure of a machine: it is beyond {_LARGEST:g} or below one over it")
    return Printed(value, float(f"5e{power - 1}"), text.strip())
