"""Options that read a quantity in any spelling of `units`, or `?` to ask for it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import click

from torchledger import units

#: What a user writes for the quantity that is asked for.
OPEN = "?"


class Quantity(click.ParamType):  # type: ignore[type-arg]  # generic only since click 8.4
    """A quantity as text.

    Args:
        name: shown in the help.
        read: text to value; its `ValueError` becomes a message about the option.
    """

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The value, or `?` as it is."""
        if not isinstance(value, str) or value == OPEN:
            return value
        try:
            return self._read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


def read_days(text: str) -> float:
    """Days: a plain number, or a duration with its units.

    >>> read_days("144"), read_days("3d 12h")
    (144.0, 3.5)
    """
    try:
        return float(text)
    except ValueError:
        return units.parse_duration(text) / 86400


def read_share(text: str) -> float:
    """A share of one.

    >>> read_share("0.5"), read_share("50%")
    (0.5, 0.5)
    """
    number = text.strip()
    try:
        share = float(number.removesuffix("%")) / 100 if number.endswith("%") else float(number)
    except ValueError:
        raise units.UnitError(text, "a share", "is no number", "0.5 or 50%") from None
    if not 0 <= share < math.inf:
        raise units.UnitError(text, "a share", "is negative or not finite", "0.5 or 50%")
    return share


COUNT = Quantity("count", units.parse_count)
BYTES = Quantity("bytes", units.parse_bytes)
DAYS = Quantity("days", read_days)
SHARE = Quantity("share", read_share)
MONEY = Quantity("money", units.parse_money)
FLOPS_PER_S = Quantity("FLOP/s", units.parse_flops_per_s)
