"""Parts that add up as printed: each is rounded so that a reader who adds the printed ones gets the printed total.

Rounding every part on its own leaves sums that are off by a unit in the last place. Here all parts are cut to the same
decimals, and the units that are missing go to the parts that were cut by most (the method of largest remainders).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

_TIME_UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6))
_BYTE_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_FIGURES = 4


@dataclass(frozen=True, slots=True)
class Printed:
    """Parts and their total as texts in one unit.

    Attributes:
        unit: of all of them.
        total: the total, without its unit.
        parts: each part's text, without its unit.
        percents: each part's share of the total; they add up to 100.0.
    """

    unit: str
    total: str
    parts: Mapping[str, str]
    percents: Mapping[str, str]

    @property
    def whole(self) -> str:
        """The total with its unit."""
        return f"{self.total} {self.unit}"

    def text(self, name: str) -> str:
        """A part with its unit and its share."""
        return f"{self.parts[name]} {self.unit}, {self.percents[name]} %"


def apportion(amounts: Mapping[str, float], places: int) -> dict[str, int]:
    """Amounts as whole multiples of 10^-places that sum to their rounded sum.

    >>> apportion({"a": 0.4, "b": 0.4, "c": 0.4}, 0), apportion({"a": 1.26, "b": 1.26}, 1)
    ({'a': 1, 'b': 0, 'c': 0}, {'a': 13, 'b': 12})
    """
    scaled = {name: amount * 10**places for name, amount in amounts.items()}
    whole = {name: math.floor(value) for name, value in scaled.items()}
    missing = round(math.fsum(scaled.values())) - sum(whole.values())
    by_rest = sorted(scaled, key=lambda name: whole[name] - scaled[name])
    return {name: whole[name] + (name in by_rest[:missing]) for name in amounts}


def seconds_printed(amounts: Mapping[str, float]) -> Printed:
    """Seconds by name, in s, ms or µs, with at least four figures in the total.

    >>> seconds_printed({"matmul": 1.23456, "bubble": 0.5})
    Printed(unit='s', total='1.735', parts={'matmul': '1.235', 'bubble': '0.500'}, percents={'matmul': '71.2', 'bubble': '28.8'})
    """  # noqa: E501 - a doctest's line
    total = math.fsum(amounts.values())
    unit, scale = next((each for each in _TIME_UNITS if total * each[1] >= 1), _TIME_UNITS[-1])
    return _printed({name: amount * scale for name, amount in amounts.items()}, unit)


def bytes_printed(amounts: Mapping[str, int]) -> Printed:
    """Bytes by name, in GiB, MiB or KiB, with at least four figures in the total.

    >>> bytes_printed({"parameters": 3 * 2**30, "activations": 2**29}).whole
    '3.500 GiB'
    """
    total = sum(amounts.values())
    unit, scale = next((each for each in _BYTE_UNITS if total >= each[1]), _BYTE_UNITS[-1])
    return _printed({name: amount / scale for name, amount in amounts.items()}, unit)


def _printed(amounts: Mapping[str, float], unit: str) -> Printed:
    total = math.fsum(amounts.values())
    figures_before = 1 if total < 1 else math.floor(math.log10(total)) + 1
    places = max(0, _FIGURES - figures_before)
    cut = apportion(amounts, places)
    shares = {name: 100 * amount / total if total else 0.0 for name, amount in amounts.items()}
    percents = apportion(shares, 1)
    return Printed(
        unit,
        _decimal(sum(cut.values()), places),
        {name: _decimal(n, places) for name, n in cut.items()},
        {name: _decimal(n, 1) for name, n in percents.items()},
    )


def _decimal(multiple: int, places: int) -> str:
    return f"{multiple / 10**places:,.{places}f}"
