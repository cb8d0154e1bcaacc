"""Checkpoints: a region keeps its inputs only and runs again in the backward pass (torch/utils/checkpoint.py).

The second run stops at the last tensor that is kept (early stop), and what it makes goes as it is taken.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence

from torchledger.formula.lifetimes.autograd import Remade
from torchledger.formula.lifetimes.memory import Block, Memory
from torchledger.formula.lifetimes.tensors import Tensor

#: Of torch's generator on the CPU, a Mersenne Twister (`torch.get_rng_state`).
_STATE_BYTES = 5056


class _Stop(Exception):
    """All that is needed has been made again."""


class Region:
    """One run of a checkpoint's operations: what they would keep, in order; in the second run what they kept.

    Attributes:
        frame: of both runs.
        is_second: whether this is the second, which makes again what the first did not keep.
    """

    __slots__ = ("frame", "is_second", "num_filled")

    def __init__(self, frame: Frame, *, is_second: bool) -> None:
        self.frame, self.is_second = frame, is_second
        self.num_filled = 0

    def keep(self, x: Tensor) -> Tensor | Remade:
        """What a node keeps in place of a tensor."""
        found = self.frame.found
        if not self.is_second:
            remade = Remade(self.frame.again)
            found.append(weakref.ref(remade))
            return remade
        waiting = found[self.num_filled]()
        if waiting is not None:
            waiting.value = x.detached()
        self.num_filled += 1
        if self.num_filled == len(found):
            raise _Stop
        return x.detached()


class Frame:
    """What a checkpoint keeps for its second run, as long as somebody waits for a tensor of it.

    Attributes:
        run: the operations.
        inputs: what they read.
        found: what stands for the tensors that are not kept.
        is_cast: whether they run under autocast.
        state: of the random numbers' generator, where they draw some.
    """

    __slots__ = ("found", "inputs", "is_cast", "memory", "run", "state")

    def __init__(
        self, memory: Memory, run: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor | None], *, draws: bool
    ) -> None:
        self.memory, self.run, self.is_cast = memory, run, memory.casts is not None
        self.state = Block(memory, _STATE_BYTES, "activations") if draws else None
        self.inputs = [None if each is None else each.detached() for each in inputs]
        self.found: list[weakref.ref[Remade]] = []
        for each, given in zip(self.inputs, inputs, strict=True):
            if each is not None and given is not None:
                each.wants = given.needs_gradient
                if each.block.part == "temporaries":
                    each.block.becomes("activations")

    def again(self) -> None:
        """The second run, under the same autocast and with the same random numbers."""
        memory = self.memory
        aside = Block(memory, _STATE_BYTES) if self.state is not None else None
        outside, records = memory.region, memory.records
        memory.region, memory.records = Region(self, is_second=True), True
        memory.casts = {} if self.is_cast else None
        with contextlib.suppress(_Stop):
            self.run(*self.inputs)
        memory.region, memory.records, memory.casts = outside, records, None
        del aside


def checkpoint(
    memory: Memory, run: Callable[..., tuple[Tensor, ...]], *inputs: Tensor | None, draws: bool = False
) -> tuple[Tensor, ...]:
    """`run(*inputs)`, which runs again when a gradient needs what it would have kept.

    Where it draws random numbers the state of the generator is kept, and put aside while it runs again.
    """
    outside = memory.region
    memory.region = Region(Frame(memory, run, inputs, draws=draws), is_second=False)
    try:
        return run(*inputs)
    finally:
        memory.region = outside
