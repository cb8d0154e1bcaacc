"""Field types for dataclasses: `tokens: Count` is an `int` to Python, and may be written "15T" in a config file."""

from collections.abc import Callable
from typing import Annotated, NamedTuple

from torchledger.units import parse
from torchledger.units.number import Quantity


class Amount(NamedTuple):
    """The mark that `Annotated` carries: how a value of the field is read from text or a number."""

    quantity: Quantity
    read: Callable[[str | float], int | float]


Count = Annotated[int, Amount(parse.COUNT, parse.parse_count)]
Bytes = Annotated[int, Amount(parse.BYTES, parse.parse_bytes)]
Flops = Annotated[int, Amount(parse.FLOPS, parse.parse_flops)]
Rate = Annotated[float, Amount(parse.RATE, parse.parse_rate)]
FlopsPerSecond = Annotated[float, Amount(parse.FLOPS_PER_S, parse.parse_flops_per_s)]
Seconds = Annotated[float, Amount(parse.DURATION, parse.parse_duration)]
