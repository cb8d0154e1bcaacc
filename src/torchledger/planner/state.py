"""Bytes that one parameter costs while it trains, and the largest model whose training state a machine can hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torchledger.planner.errors import PlanError
from torchledger.units import format_bytes, format_bytes_decimal, format_count, group_digits

OptimizerKind = Literal["adamw", "sgd", "sgd-momentum"]


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
    weight: int
    gradient: int
    master: int
    moments: int
    note: str = ""

    @property
    def total(self) -> int:
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
            parts.append(f"{self.moments} moments")
        return f"{' + '.join(parts)} = {self.total} bytes per parameter"


#: (weight, gradient, master, bytes of one moment) and what it means.
_PRECISIONS: Mapping[str, tuple[int, int, int, int, str]] = {
    "fp32": (4, 4, 0, 4, "everything in FP32"),
    "bf16": (4, 4, 0, 4, "autocast: FP32 parameters, gradients and moments, matmuls in BF16"),
    "fp16": (4, 4, 0, 4, "autocast: FP32 parameters, gradients and moments, matmuls in FP16, with loss scaling"),
    "bf16-master": (2, 2, 4, 4, "BF16 weights and gradients, FP32 master copy (ZeRO, arXiv:1910.02054, section 3.1)"),
    "bf16-moments": (2, 2, 0, 4, "BF16 weights and gradients, FP32 moments, no master copy"),
    "bf16-pure": (2, 2, 0, 2, "everything in BF16: small updates round away"),
}
_MOMENTS: Mapping[str, int] = {"adamw": 2, "sgd": 0, "sgd-momentum": 1}

PRECISIONS: tuple[str, ...] = tuple(_PRECISIONS)
OPTIMIZERS: tuple[str, ...] = tuple(_MOMENTS)


def state_bytes(precision: str, optimizer: str = "adamw") -> StateBytes:
    """The bytes per parameter of a precision under an optimizer.

    Raises:
        PlanError: an unknown precision or optimizer; the message lists the known ones.

    >>> state_bytes("fp32").total, state_bytes("bf16-moments").total, state_bytes("fp32", "sgd").total
    (16, 12, 8)
    """
    if precision not in _PRECISIONS:
        raise PlanError(f"precision {precision!r} is not known; known are {', '.join(PRECISIONS)}")
    if optimizer not in _MOMENTS:
        raise PlanError(f"optimizer {optimizer!r} is not known; known are {', '.join(OPTIMIZERS)}")
    weight, gradient, master, moment, note = _PRECISIONS[precision]
    return StateBytes(precision, weight, gradient, master, moment * _MOMENTS[optimizer], note)


@dataclass(frozen=True, slots=True)
class Holding:
    """How large a model's training state fits.

    Attributes:
        label: whose bytes these are (`nominal`, `reported by the driver`).
        num_chips: chips that share the state.
        bytes_per_chip: bytes counted on each of them.
        state: bytes per parameter.
    """

    label: str
    num_chips: int
    bytes_per_chip: int
    state: StateBytes

    @property
    def params(self) -> int:
        """The largest number of parameters.

        >>> Holding("nominal", 8, 80 * 10**9, state_bytes("fp32")).params
        40000000000
        """
        return self.num_chips * self.bytes_per_chip // self.state.total

    @property
    def arithmetic(self) -> str:
        """The division as one line."""
        shown = (
            format_bytes_decimal(self.bytes_per_chip) if self.label == "nominal" else format_bytes(self.bytes_per_chip)
        )
        return (
            f"params = {group_digits(self.num_chips)} chips · {shown} / {self.state.total} bytes"
            f" = {format_count(self.params)}"
        )

    def share_needed(self, params: float) -> float:
        """The share of all bytes that the state of `params` parameters takes; over 1 it does not fit."""
        return params * self.state.total / (self.num_chips * self.bytes_per_chip)
