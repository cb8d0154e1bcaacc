"""Price, power, carbon and losses of a run: the options, and what they mean for one chip."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from torchledger import units
from torchledger.cli.named_path import NamedPath
from torchledger.cli.quantity import MONEY, SHARE, Quantity
from torchledger.machine import Chip
from torchledger.planner.price import Price, price_of, read_prices
from torchledger.planner.terms import RunTerms

Function = TypeVar("Function", bound=Callable[..., Any])


def read_with_unit(unit: str, example: str) -> Callable[[str], float]:
    """A reader of plain numbers that may have a unit behind them.

    >>> read_with_unit("g/kWh", "400")("400 g/kWh")
    400.0
    """

    def read(text: str) -> float:
        number = text.strip().removesuffix(unit).strip()
        try:
            return float(number)
        except ValueError:
            raise units.UnitError(text, f"an amount in {unit}", "is no number", example) from None

    return read


_WATTS = Quantity("watts", read_with_unit("W", "350 or 350W"))
_CARBON = Quantity("g/kWh", read_with_unit("g/kWh", "400 or 400g/kWh"))
_RATIO = Quantity("ratio", read_with_unit("x", "1.1"))
_SECONDS = Quantity("duration", units.parse_duration)

_OPTIONS = (
    click.option("--price", type=MONEY, help="Price of one chip for one hour: '$2.80'."),
    click.option(
        "--prices",
        type=NamedPath(exists=True, dir_okay=False, path_type=Path),
        help="Your own file of prices: a table [h100] with price, currency, date, source.",
    ),
    click.option("--carbon", type=_CARBON, help="Carbon of the grid, g CO2e for a kWh: 400."),
    click.option("--tdp-share", type=SHARE, help="Share of the chip's thermal design power that it draws."),
    click.option("--host-power", type=_WATTS, help="Power of the host for one chip, in watts."),
    click.option("--pue", type=_RATIO, help="Power usage effectiveness of the building: 1.1."),
    click.option("--goodput", type=SHARE, help="Share of the wall clock that trains, in place of the losses below."),
    click.option("--evaluation", type=SHARE, help="Tokens evaluated for each token trained: 1%."),
    click.option("--failure-every", type=_SECONDS, help="Mean time between failures of the whole cluster: 12h."),
    click.option("--restart-time", type=_SECONDS, help="From a failure until training goes on: 10m."),
    click.option("--checkpoint-time", type=_SECONDS, help="How long training waits for one checkpoint: 30s."),
)


def run_options(function: Function) -> Function:
    """Add the options of price, power, carbon and losses to a command."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Terms:
    """What the user says of a run's cost.

    Attributes:
        price: of one chip for an hour; nothing where none is known.
        run: price, power and losses as the planner takes them.
    """

    price: Price | None
    run: RunTerms

    @property
    def currency(self) -> str:
        """Of the price."""
        return "USD" if self.price is None else self.price.currency

    @property
    def assumptions(self) -> tuple[str, ...]:
        """Where the price comes from."""
        return () if self.price is None else (self.price.text,)


def read_terms(options: Mapping[str, Any], chip: Chip, num_chips: int | None = None) -> Terms:
    """The terms for one chip.

    Args:
        options: of the command; those that are not there are not given.
        chip: whose price is looked up.
        num_chips: chips of the cluster, which `--failure-every` is about.

    Raises:
        BadPrices, PlanError: the file of prices has mistakes, or no price for the chip.
        click.UsageError: a price is given twice, or a time between failures without a number of chips.
    """
    price, file = options.get("price"), options.get("prices")
    if price is not None and file is not None:
        raise click.UsageError("--price and --prices both say what a chip costs; leave one of the two out")
    found = None
    if price is not None:
        found = Price(*price)
    elif file is not None:
        found = price_of(chip, read_prices(file))
    every = options.get("failure_every")
    if every is not None and not num_chips:
        raise click.UsageError("--failure-every is the whole cluster's: say how many chips it has (--on h100x1024)")
    if every is not None and not every > 0:
        raise click.UsageError("--failure-every is a time above zero: 12h")
    rate = None if every is None or not num_chips else 3600 / (every * num_chips)
    run = RunTerms(
        price_per_chip_hour=None if found is None else found.per_chip_hour,
        carbon_g_per_kwh=options.get("carbon"),
        tdp_share=options.get("tdp_share"),
        host_w=options.get("host_power"),
        pue=options.get("pue"),
        goodput=options.get("goodput"),
        evaluation=options.get("evaluation"),
        failures_per_chip_hour=rate,
        restart_s=options.get("restart_time"),
        checkpoint_s=options.get("checkpoint_time"),
    )
    return Terms(found, run)
