"""Prices of a chip-hour, from the user's own file: none ships, for a price without its day and source is no fact."""

from __future__ import annotations

import datetime as dt
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torchledger import units
from torchledger.machine import Chip, MachineError, get
from torchledger.planner.errors import PlanError

_FIELDS = ("price", "currency", "date", "source")


class BadPrices(PlanError):
    """A file of prices has mistakes.

    Attributes:
        mistakes: every one of them, as `file: [chip] field: what is wrong`.
    """

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        self.mistakes = mistakes
        super().__init__("\n".join(mistakes))


@dataclass(frozen=True, slots=True)
class Price:
    """What one chip costs for an hour.

    Attributes:
        per_chip_hour: in `currency`.
        currency: `USD`, `EUR` ...
        date: the day the price was read; empty where the user gave it on the command line.
        source: who asks it; empty likewise.
    """

    per_chip_hour: float
    currency: str = "USD"
    date: str = ""
    source: str = ""

    @property
    def text(self) -> str:
        """The assumption as a line for the answer.

        >>> Price(2.8, "USD", "2026-11-01", "our contract").text
        'price: $2.80 a chip-hour (our contract, 2026-11-01)'
        """
        where = ", ".join(part for part in (self.source, self.date) if part) or "as given"
        return f"price: {units.format_money(self.per_chip_hour, self.currency)} a chip-hour ({where})"


def read_prices(path: str | PathLike[str]) -> Mapping[str, Price]:
    """Prices by the catalog's key of the chip.

    A file has a table for each chip, by any of its names, and may have a table `[file]` with what all of them share::

        [file]
        currency = "EUR"
        date = "2026-11-01"
        source = "our contract"

        [h100]
        price = 2.80        # one chip for one hour

        [a100]
        price = "$1.10"     # text names its own currency
        source = "the other contract"

    Raises:
        BadPrices: the file is no TOML, names an unknown chip or a price that is none, or leaves out a date or a source;
            all mistakes at once.
        OSError: the file cannot be read.
    """
    path = Path(path)
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadPrices((f"{path.name}: is no TOML: {error}",)) from None
    shared = tables.pop("file", {})
    prices: dict[str, Price] = {}
    mistakes: list[str] = [] if isinstance(shared, dict) else [f"{path.name}: file: must be a table"]
    for name, row in tables.items():
        found = list(_read(name, row, shared if isinstance(shared, dict) else {}))
        mistakes += [f"{path.name}: [{name}] {each}" for each in found if isinstance(each, str)]
        for each in found:
            if isinstance(each, tuple) and prices.setdefault(each[0], each[1]) is not each[1]:
                mistakes.append(f"{path.name}: [{name}] is a second name of a chip that has a price already")
    if not tables and not mistakes:
        mistakes.append(
            f'{path.name}: has no chip: write [h100] and below it price = 2.80, date = "...", source = "..."'
        )
    if mistakes:
        raise BadPrices(tuple(mistakes))
    return prices


def price_of(chip: Chip, prices: Mapping[str, Price]) -> Price:
    """The chip's price.

    Raises:
        PlanError: the file has none for it; names those that it has.
    """
    try:
        return prices[chip.key]
    except KeyError:
        raise PlanError(
            f"the file of prices has none for {chip.name} (it has {', '.join(prices)}):"
            f" add a table [{chip.key}], or give --price"
        ) from None


def _read(name: str, row: Any, shared: Mapping[str, Any]) -> Iterator[str | tuple[str, Price]]:
    """The chip and its price, or what is wrong with them."""
    if not isinstance(row, dict):
        yield "stands outside any [chip]"
        return
    told = {**shared, **row}
    mistakes = [f"{key}: is no field; known are {', '.join(_FIELDS)}" for key in told if key not in _FIELDS]
    try:
        key = get(name).key
    except MachineError as error:
        mistakes.append(str(error))
    amount, currency = _amount(told.get("price"), told.get("currency", "USD"), mistakes)
    date, source = (_text(told.get(field), field, mistakes) for field in ("date", "source"))
    if date and not _is_day(date):
        mistakes.append(f"date: {date!r} is no day; write the day the price was read, 2026-11-30")
    if mistakes:
        yield from mistakes
    else:
        yield key, Price(amount, currency, date, source)


def _amount(price: Any, currency: Any, mistakes: list[str]) -> tuple[float, str]:
    if not isinstance(currency, str):
        mistakes.append(f"currency: {currency!r} is no text")
        currency = ""
    if isinstance(price, str):
        try:
            price, currency = units.parse_money(price)
        except units.UnitError as error:
            mistakes.append(f"price: {error}")
            return 0.0, currency
    if isinstance(price, bool) or not isinstance(price, (int, float)) or not (math.isfinite(price) and price > 0):
        missing = "is missing" if price is None else f"{price!r} is no price"
        mistakes.append(f"price: {missing}; write what one chip costs for an hour, 2.80")
        return 0.0, currency
    return float(price), currency


def _is_day(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _text(value: Any, field: str, mistakes: list[str]) -> str:
    if isinstance(value, (dt.date, dt.datetime)):
        return value.isoformat()
    if not isinstance(value, str) or not value:
        mistakes.append(f"{field}: is missing; a price is known only with its {field}")
        return ""
    return value
