"""`PieceCost`: seconds of a block on a chip, by phase and by cause; what the search adds up instead of ledgers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from torchledger.ledger import Line
from torchledger.planner.block import Piece
from torchledger.planner.constants import Constants
from torchledger.planner.efficiency import Chipset, line_s
from torchledger.planner.exchange import Exchange

#: Seconds of an exchange on the cluster at hand.
ExchangeSeconds = Callable[[Exchange], float]

_PHASES = ("forward", "recompute", "backward", "weight")
_EXCHANGE_CAUSES = {
    "tensor": "tensor parallel communication",
    "vocabulary": "tensor parallel communication",
    "context": "context parallel communication",
    "expert": "expert parallel communication",
    "expert tensor": "tensor parallel communication",
}


class PhaseCost(NamedTuple):
    """Seconds of one phase of a block for one micro-batch.

    Attributes:
        seconds: all of it.
        causes: (cause, seconds), which add up to it.
    """

    seconds: float
    causes: tuple[tuple[str, float], ...]


class PieceCost(NamedTuple):
    """Seconds of a block for one micro-batch, by phase.

    Attributes:
        forward, recompute, backward, weight: `backward` without the gradients of weights, which are `weight`.
    """

    forward: PhaseCost
    recompute: PhaseCost
    backward: PhaseCost
    weight: PhaseCost

    @property
    def total_s(self) -> float:
        """All phases."""
        return self.forward.seconds + self.recompute.seconds + self.backward.seconds + self.weight.seconds


def piece_cost(
    piece: Piece, chips: Chipset, constants: Constants, exchange_s: ExchangeSeconds, *, host_factor: float
) -> PieceCost:
    """Time a block's lines and exchanges.

    A phase is as long as the device needs, or as the host needs to issue it, whichever is longer: in an eager stack the
    device waits for a host that cannot keep up. `host_factor` is the stack's; 0 where nothing is issued one by one.
    """
    device: dict[str, dict[str, float]] = {phase: {} for phase in _PHASES}
    operations = dict.fromkeys(_PHASES, 0.0)
    for line in piece.block.lines:
        phase = _phase(line)
        seconds = line_s(line, chips)
        if not seconds:
            continue
        cause: str = line.kind if line.kind in {"matmul", "attention"} else "memory-bound operations"
        device[phase][cause] = device[phase].get(cause, 0.0) + seconds * line.times
        operations[phase] += line.times
    # what of the computing of a phase still has nothing beside it: two exchanges cannot hide behind the same second
    free = {phase: dict(causes) for phase, causes in device.items()}
    for exchange in piece.exchanges:
        phase = exchange.phase
        cause = _EXCHANGE_CAUSES[exchange.cause]
        seconds = exchange_s(exchange) * exchange.times
        if exchange.is_hidden:
            cover = "attention" if exchange.cause == "context" else "matmul"
            beside = free[phase].get(cover, 0.0)
            free[phase][cover] = max(0.0, beside - seconds)
            first = seconds / exchange.num_chunks if exchange.num_chunks else 0.0
            seconds = max(first, seconds - beside) + constants.drag * min(seconds, beside)
        device[phase][cause] = device[phase].get(cause, 0.0) + seconds
        operations[phase] += exchange.times
    costs = []
    for phase in _PHASES:
        causes = dict(device[phase])
        total = sum(causes.values())
        host = operations[phase] * constants.host_s * host_factor
        if host and phase == "recompute":
            host += constants.checkpoint_host_s
        if host > total:
            causes["launch overhead"] = host - total
        costs.append(PhaseCost(max(host, total), tuple(causes.items())))
    return PieceCost(*costs)


def _phase(line: Line) -> str:
    return "weight" if line.phase == "backward" and line.gradient_of == "weight" else line.phase
