"""The largest model whose training a machine can hold, and the fewest chips that hold a model."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any, Literal

from torchledger.planner.errors import PlanError
from torchledger.planner.state import StateBytes
from torchledger.units import format_bytes, format_bytes_decimal, format_count, format_number, group_digits

ActivationKind = Literal["none", "kept", "recomputed"]
_SPREAD = (
    "every chip holds the whole training state (ZeRO level 0, plain data parallelism)",
    "the optimizer's state is spread evenly over all chips, weights and gradients are not (ZeRO level 1)",
    "optimizer state and gradients are spread evenly over all chips, weights are not (ZeRO level 2)",
    "the state is spread evenly over all chips (ZeRO level 3, FSDP)",
)


@dataclass(frozen=True, slots=True)
class Activations:
    """Bytes that one token keeps for the backward pass, over the number of parameters N: deep·N^(2/3) + wide·N^(1/3).

    Depth and width grow alike with N, so what every layer keeps grows as N^(2/3) and what one layer holds as N^(1/3).

    Attributes:
        deep, wide: bytes a token at one parameter.
        tokens: tokens that a chip holds at once.
        text: where the figures come from.
    """

    deep: float
    wide: float
    tokens: int
    text: str

    def num_bytes(self, params: float) -> float:
        """Bytes on one chip."""
        return self.tokens * float(self.deep * params ** (2 / 3) + self.wide * params ** (1 / 3))


def activations(kind: ActivationKind, tokens: int) -> Activations | None:
    """Activations of a Transformer of which only the parameters are known, as `data/shape.toml` shapes it.

    With N = 12·L·h² and h = a·L the model has L = (N / (12·a²))^(1/3) layers.

    >>> held = activations("kept", 1)
    >>> round(held.num_bytes(12 * 32 * 4096**2)) == 34 * 32 * 4096  # 34·L·h
    True
    """
    if kind == "none":
        return None
    rows = _shape()
    a: float = rows["transformer"]["hidden_per_layer"]
    full, row = rows["kept"]["bytes_per_layer"], rows[kind]
    layers = (1 / (12 * a * a)) ** (1 / 3)
    deep = row["bytes_per_layer"] * a * layers**2
    wide = 0.0 if kind == "kept" else full * a * layers
    text = f"activations: {row['what']} ({row['source']}); {rows['transformer']['what']}"
    return Activations(deep, wide, tokens, text)


def family(name: str, params: int, bytes_per_token: float, tokens: int) -> Activations:
    """Activations of models shaped like one whose bytes a token are known: they grow as N^(2/3)."""
    what = f"{format_bytes_decimal(round(bytes_per_token))} a token as counted for {name}, growing as parameters^(2/3)"
    return Activations(bytes_per_token / params ** (2 / 3), 0.0, tokens, f"activations: {what}")


@dataclass(frozen=True, slots=True)
class Holding:
    """How large a model's training fits.

    Attributes:
        label: whose bytes these are (`nominal`, `reported by the driver`).
        num_chips: chips that share the state.
        bytes_per_chip: bytes counted on each of them.
        state: bytes per parameter.
        shard_level: what of it is spread over the chips (ZeRO, arXiv:1910.02054): 0 nothing, 1 optimizer state, 2
            gradients too, 3 weights too.
        activations: what a chip keeps for the backward pass; nothing is not counted.
    """

    label: str
    num_chips: int
    bytes_per_chip: int
    state: StateBytes
    shard_level: int = 3
    activations: Activations | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.shard_level <= 3:
            raise PlanError(f"the ZeRO level is {self.shard_level}; it is 0, 1, 2 or 3")

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes of one parameter's state on one chip."""
        parts = self.state.on_a_chip
        return sum(parts[: self.shard_level]) / self.num_chips + sum(parts[self.shard_level :])

    def bytes_needed(self, params: float) -> float:
        """Bytes that one chip needs for `params` parameters."""
        state = params * self.bytes_per_parameter
        return state if self.activations is None else state + self.activations.num_bytes(params)

    @property
    def params(self) -> int:
        """The largest number of parameters.

        >>> from torchledger.planner.state import state_bytes
        >>> Holding("nominal", 8, 80 * 10**9, state_bytes("fp32")).params
        40000000000
        """
        if self.activations is None:
            if self.shard_level == 3:
                return int(self.num_chips * self.bytes_per_chip // self.state.total)
            return int(self.bytes_per_chip // self.bytes_per_parameter)
        low, high = 0, int(self.bytes_per_chip // self.bytes_per_parameter) + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.bytes_needed(middle) <= self.bytes_per_chip else (low, middle)
        return low

    def chips_needed(self, params: float) -> int | None:
        """The fewest chips that hold `params` parameters; nothing where no number does, because a part is not spread.

        >>> from torchledger.planner.state import state_bytes
        >>> Holding("nominal", 1, 80 * 10**9, state_bytes("fp32")).chips_needed(70e9)  # 70e9·16 / 80e9
        14
        """
        parts = [Fraction(each) for each in self.state.on_a_chip]  # exact: floats may round over a whole number
        fixed = Fraction(params) * sum(parts[self.shard_level :])
        fixed += 0 if self.activations is None else Fraction(self.activations.num_bytes(params))
        if fixed >= self.bytes_per_chip:
            return 1 if self.shard_level == 0 and fixed == self.bytes_per_chip else None
        return max(1, math.ceil(Fraction(params) * sum(parts[: self.shard_level]) / (self.bytes_per_chip - fixed)))

    def share_needed(self, params: float) -> float:
        """The share of a chip's bytes that `params` parameters take; over 1 it does not fit."""
        return self.bytes_needed(params) / self.bytes_per_chip

    @property
    def capacity_text(self) -> str:
        """A chip's bytes: decimal where they are what the label says, binary where a driver reported them."""
        return self.show(self.bytes_per_chip)

    def show(self, num_bytes: float) -> str:
        """Bytes as the label has them."""
        return (format_bytes_decimal if self.label == "nominal" else format_bytes)(round(num_bytes))

    @property
    def arithmetic(self) -> str:
        """The division as one line."""
        chips, total = group_digits(self.num_chips), format_number(self.state.total, 4)
        if self.shard_level == 3:
            room, divisor = f"{chips} chips · {self.capacity_text}", f"{total} bytes"
        elif self.shard_level == 0:
            room, divisor = self.capacity_text, f"{total} bytes"
        else:
            parts = self.state.on_a_chip
            spread, whole = (
                format_number(sum(each), 4) for each in (parts[: self.shard_level], parts[self.shard_level :])
            )
            room, divisor = self.capacity_text, f"({whole} + {spread}/{chips} bytes)"
        if self.activations is None:
            return f"params = {room} / {divisor} = {format_count(self.params)}"
        kept = self.activations.num_bytes(self.params) / self.activations.tokens
        tokens = f"{group_digits(self.activations.tokens)} tokens · {self.show(kept)}"
        if self.shard_level == 3:
            tokens = f"{chips} chips · {tokens}"
        return f"params = ({room} - {tokens} of activations) / {divisor} = {format_count(self.params)}"

    @property
    def spread_text(self) -> str:
        """What is spread over the chips, as an assumption."""
        return _SPREAD[self.shard_level]


@cache
def _shape() -> dict[str, Any]:
    text = resources.files("torchledger.planner").joinpath("data/shape.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
