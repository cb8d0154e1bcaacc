"""`LeastExchanges`: the least that the exchanges of a micro-batch add to its blocks.

What is sent for one sequence is asked once of a layout's numbers of ranks: n sequences send at least n times that. An
exchange that hides adds what is longer than its cover. How long the cover is at the most nobody knows here, but a
longer one takes its own seconds: with a floor C of the cover, cover and exchange of S seconds together take at least
C + max(0, S - C), which only grows with C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from torchledger.formula import Part
from torchledger.planner.block import exchanges_of
from torchledger.planner.estimator import Estimator
from torchledger.planner.exchange import Exchange, Operation, group_of
from torchledger.planner.stack import Stack
from torchledger.spec import Strategy
from torchledger.spec.recipe import Recompute

_PHASES = ("forward", "recompute", "backward", "weight")
_CAUSES = {
    "tensor": "tensor parallel communication",
    "vocabulary": "tensor parallel communication",
    "context": "context parallel communication",
    "expert": "expert parallel communication",
    "expert tensor": "tensor parallel communication",
}


class Hidden(NamedTuple):
    """Exchanges of a phase that run beside one kind of computing.

    Attributes:
        seconds: of all of them.
        first_s: of their first pieces, which show in any case.
    """

    seconds: float = 0.0
    first_s: float = 0.0

    def shown_s(self, cover_s: float, drag: float) -> float:
        """What they add to a cover of at least so many seconds."""
        if not self.seconds:
            return 0.0
        beside = min(self.seconds, cover_s)
        return max(self.first_s, self.seconds - beside) + drag * beside


class Sent(NamedTuple):
    """Exchanges of one phase of a block.

    Attributes:
        shown_s: seconds of those that nothing hides.
        attention, matmul: those that run beside it.
    """

    shown_s: float
    attention: Hidden
    matmul: Hidden

    def least_s(self, drag: float) -> float:
        """What they add, however long their covers are."""
        return sum((drag * each.seconds + each.first_s for each in (self.attention, self.matmul)), self.shown_s)


class Exchanged(NamedTuple):
    """What the exchanges of a micro-batch take.

    Attributes:
        blocks: [block][phase].
        causes: seconds that they show, at the least, of one micro-batch through all layers, by cause.
    """

    blocks: tuple[tuple[Sent, ...], ...]
    causes: dict[str, float]


class _Send(NamedTuple):
    """An exchange of one sequence.

    Attributes:
        op, num_bytes, copies, times, phase, num_chunks: of `Exchange`.
        ranks, distance: of its group.
        hides: the phase and whether attention is what it hides behind; nothing where it is shown.
        cause: in words.
        num_layers: how many such blocks there are.
    """

    op: Operation
    num_bytes: int
    copies: int
    times: int
    phase: str
    num_chunks: int
    ranks: int
    distance: int
    hides: tuple[str, bool] | None
    cause: str
    num_layers: int

    @classmethod
    def of(cls, each: Exchange, strategy: Strategy, num_layers: int) -> _Send:
        """An exchange of a layout."""
        hides = (each.phase, each.cause == "context") if each.is_hidden else None
        sent = (each.op, each.num_bytes, each.copies, each.times, each.phase, each.num_chunks)
        return cls(*sent, *group_of(each.cause, strategy), hides, _CAUSES[each.cause], num_layers)


class LeastExchanges:
    """Exchanges of layouts of one question.

    Args:
        estimator: of the question.
        stack: whose rules hold.
        parts: of the model, unsharded.
    """

    __slots__ = ("_estimator", "_exchanged", "_parts", "_sends", "_stack")

    def __init__(self, estimator: Estimator, stack: Stack, parts: Sequence[Part]) -> None:
        self._estimator = estimator
        self._stack = stack
        self._parts = parts
        self._sends: dict[tuple[object, ...], tuple[tuple[_Send, ...], ...]] = {}
        self._exchanged: dict[tuple[int, int], Exchanged] = {}

    def of(self, strategy: Strategy, recompute: Recompute) -> Exchanged:
        """What the exchanges of one of the layout's micro-batches take."""
        sends = self._sends_of(strategy, recompute)
        key = (id(sends), strategy.micro_batch_size)
        found = self._exchanged.get(key)
        if found is None:
            found = self._exchanged[key] = self._priced(sends, strategy.micro_batch_size)
        return found

    def _sends_of(self, strategy: Strategy, recompute: Recompute) -> tuple[tuple[_Send, ...], ...]:
        """By block."""
        key = (
            strategy.tensor_parallel,
            strategy.sequence_parallel,
            strategy.context_parallel,
            strategy.context_kind,
            strategy.expert_parallel,
            strategy.expert_tensor_parallel,
            recompute,
        )
        found = self._sends.get(key)
        if found is None:
            estimator, single = self._estimator.at(recompute), replace(strategy, micro_batch_size=1)
            found = self._sends[key] = tuple(
                tuple(
                    _Send.of(each, single, part.times)
                    for each in exchanges_of(part, estimator.spec, estimator.recipe, single, self._stack)
                )
                for part in self._parts
            )
        return found

    def _priced(self, sends: tuple[tuple[_Send, ...], ...], size: int) -> Exchanged:
        drag, fabric = self._estimator.constants.drag, self._estimator.fabric
        blocks, causes = [], dict.fromkeys(_CAUSES.values(), 0.0)
        for block in sends:
            shown = dict.fromkeys(_PHASES, 0.0)
            hidden: dict[tuple[str, bool], Hidden] = {}
            for op, num_bytes, copies, times, phase, num_chunks, ranks, distance, hides, cause, num_layers in block:
                seconds = fabric.seconds(op, num_bytes * size, ranks, distance, copies=copies) * times
                if hides is None:
                    shown[phase] += seconds
                else:
                    first_s = seconds / num_chunks if num_chunks else 0.0
                    before = hidden.get(hides, _NONE)
                    hidden[hides] = Hidden(before.seconds + seconds, before.first_s + first_s)
                    seconds = drag * seconds + first_s
                causes[cause] += seconds * num_layers
            if hidden:
                sent = [
                    Sent(s, hidden.get((phase, True), _NONE), hidden.get((phase, False), _NONE))
                    for phase, s in shown.items()
                ]
            else:
                sent = [Sent(s, _NONE, _NONE) for s in shown.values()]
            blocks.append(tuple(sent))
        return Exchanged(tuple(blocks), causes)


_NONE = Hidden()
