"""Bytes that one parameter costs while it trains, from `data/state.toml`."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from torchledger.planner.errors import PlanError
from torchledger.units import format_number


@dataclass(frozen=True, slots=True)
class StateBytes:
    """What is kept for every parameter between two steps, in bytes.

    Attributes:
        name: the precision it belongs to.
        weight: the parameter that the matmuls read.
        gradient: its gradient.
        master: a second, FP32 copy that the optimizer updates; 0 where the weight itself is FP32 or there is none.
        moments: the optimizer's running averages.
        note: what it means in practice.
    """

    name: str
    weight: float
    gradient: float
    master: float
    moments: float
    note: str = ""

    @property
    def total(self) -> float:
        """Bytes per parameter in all.

        >>> StateBytes("fp32", weight=4, gradient=4, master=0, moments=8).total
        16
        """
        return self.weight + self.gradient + self.master + self.moments

    @property
    def text(self) -> str:
        """The sum written out.

        >>> StateBytes("bf16-master", 2, 2, 4, 8).text
        '2 weight + 2 gradient + 4 FP32 master + 8 moments = 16 bytes per parameter'
        """
        parts = [f"{self.weight} weight", f"{self.gradient} gradient"]
        if self.master:
            parts.append(f"{self.master} FP32 master")
        if self.moments:
            parts.append(f"{format_number(self.moments, 4)} moments")
        return f"{' + '.join(parts)} = {format_number(self.total, 4)} bytes per parameter"

    @property
    def on_a_chip(self) -> tuple[float, float, float]:
        """What ZeRO spreads first (master and moments), second (gradients) and third (weights), bytes per parameter."""
        return (self.master + self.moments, self.gradient, self.weight)


_TABLES: Mapping[str, Mapping[str, Any]] = tomllib.loads(
    resources.files("torchledger.planner").joinpath("data/state.toml").read_text(encoding="utf-8")
)
PRECISIONS: tuple[str, ...] = tuple(_TABLES["precision"])
OPTIMIZERS: tuple[str, ...] = tuple(_TABLES["optimizer"])
#: Formats that gradients may be kept in, and their bytes.
GRADIENTS: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1}


def state_bytes(precision: str, optimizer: str = "adamw", gradient: str | None = None) -> StateBytes:
    """The bytes per parameter of a precision under an optimizer.

    Args:
        precision: one of `PRECISIONS`.
        optimizer: one of `OPTIMIZERS`.
        gradient: format that gradients are kept in, one of `GRADIENTS`; nothing is the precision's own.

    Raises:
        PlanError: an unknown precision, optimizer or format; the message lists the known ones.

    >>> state_bytes("fp32").total, state_bytes("bf16-moments").total, state_bytes("fp32", "sgd").total
    (16, 12, 8)
    >>> state_bytes("bf16-master", gradient="fp32").total  # Megatron-LM's main gradients
    18
    """
    for what, name, known in (
        ("precision", precision, PRECISIONS),
        ("optimizer", optimizer, OPTIMIZERS),
        ("format of gradients", gradient or "fp32", tuple(GRADIENTS)),
    ):
        if name not in known:
            raise PlanError(f"{what} {name!r} is not known; known are {', '.join(known)}")
    row, how = _TABLES["precision"][precision], _TABLES["optimizer"][optimizer]
    moments = how["bytes"] if "bytes" in how else how["moments"] * row["moment"]
    held = row["gradient"] if gradient is None else GRADIENTS[gradient]
    return StateBytes(precision, row["weight"], held, row["master"], moments, row["note"])


def optimizer_note(optimizer: str) -> str:
    """What an optimizer keeps, in words.

    >>> optimizer_note("lion")
    'one average (arXiv:2302.06675)'
    """
    note: str = _TABLES["optimizer"][optimizer]["note"]
    return note
