"""What is asked of the napkin, read from the options of `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from torchledger import machine, planner
from torchledger.cli.quantity import OPEN
from torchledger.machine import Cluster

#: Other names of quantities that people write.
OTHER_NAMES = {"chips": "num_chips", "gpus": "num_chips", "parameters": "params", "time": "days"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of the napkin.

    Attributes:
        given: the known quantities of `planner.QUANTITIES`.
        solved: the one that is asked for; nothing where it follows from what is left out.
        cluster: the chips, their number as `--on` says it.
        precision, optimizer: of the training state.
        price_per_chip_hour, money: in `currency`; `None` where not given.
        peak_flops_per_s: another peak than the catalog's; `None` takes the catalog's.
    """

    given: Mapping[str, float]
    solved: str | None
    cluster: Cluster
    precision: str
    optimizer: str
    price_per_chip_hour: float | None
    money: float | None
    currency: str
    peak_flops_per_s: float | None

    @property
    def asks_memory(self) -> bool:
        """Whether the largest model is asked for and nothing about time is given: memory alone answers."""
        timed = {"tokens", "days"} <= self.given.keys() or self.money is not None
        return self.solved == "params" and not timed

    @property
    def number_format(self) -> str:
        """What the matmuls run in."""
        return self.precision.partition("-")[0]


def read_question(options: Mapping[str, Any]) -> Question:
    """The question, with what is asked for taken out of what is given.

    Raises:
        click.UsageError: no chips, two quantities asked for, or one both given and asked for.
    """
    if not options["cluster"]:
        raise click.UsageError("which chips? Give --on, for example --on h100x1024 (`torchledger machines` lists them)")
    cluster = machine.parse_cluster(options["cluster"])
    values = {name: options[name] for name in planner.QUANTITIES if options[name] is not None}
    asked = {name for name, value in values.items() if value == OPEN}
    if options["solve"]:
        asked.add(OTHER_NAMES.get(options["solve"], options["solve"]))
    if len(asked) > 1:
        raise click.UsageError(f"one quantity is asked for at a time, not {len(asked)}: {', '.join(sorted(asked))}")
    solved = next(iter(asked), None)
    given = {name: value for name, value in values.items() if value != OPEN}
    if solved in given:
        raise click.UsageError(f"{solved} is both given and asked for; leave one of the two out")
    price, money = options["price"], options["money"]
    if "num_chips" not in given and solved != "num_chips":
        # a chip without a number, where the work and the time or the bill are known: how many is left open
        is_open = cluster.num_chips == 1 and (
            money or (solved is None and {"params", "tokens", "days"} <= given.keys())
        )
        if not is_open:
            given["num_chips"] = cluster.num_chips
    return Question(
        given=given,
        solved=solved,
        cluster=cluster,
        precision=options["precision"],
        optimizer=options["optimizer"],
        price_per_chip_hour=price[0] if price else None,
        money=money[0] if money else None,
        currency=_currency(price, money),
        peak_flops_per_s=options["peak"],
    )


def _currency(price: tuple[float, str] | None, money: tuple[float, str] | None) -> str:
    named = {amount[1] for amount in (price, money) if amount}
    if len(named) > 1:
        raise click.UsageError(f"price and money are in two currencies: {' and '.join(sorted(named))}")
    return next(iter(named), "USD")
