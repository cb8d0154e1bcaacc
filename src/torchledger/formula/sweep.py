"""What a part of the model holds beside what it keeps, at the fullest moment of its forward and of its backward pass.

A sweep over the operations of a tape: a tensor is alive from the operation that makes it to the last one that reads it,
unless it is kept. In the backward pass gradients come alive, kept tensors go with the last operation that needs them,
and gradients of several readers are added into the first (torch/csrc/autograd/input_buffer.cpp). Tensors only: neither
workspaces of kernels nor fragments of the allocator are in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torchledger.formula.tape import Operation, Tape
from torchledger.ledger import Amount


def forward_temporary_bytes(tape: Tape) -> Amount:
    """The most that the forward pass holds beside what is kept at its end."""
    kept = {number for number, each in enumerate(tape.storages) if each.kept_by}
    return _forward(tape, tape.operations, kept)


def backward_temporary_bytes(tape: Tape) -> Amount:
    """The most that the backward pass holds beside what is kept, and made again, at its start.

    The gradient that comes in from the next part is in it. So is what the second run of a checkpoint holds while it
    runs.
    """
    sweep = _Backward(tape)
    regions = {operation.region for operation in tape.operations if operation.region and operation.differentiable}
    again = {number for number, each in enumerate(tape.storages) if each.kept_by or each.recomputed}
    for number in range(len(tape.operations) - 1, -1, -1):
        operation = tape.operations[number]
        if operation.region in regions:
            regions.discard(operation.region)
            run = [each for each in tape.operations if each.region == operation.region]
            sweep.make_again(_made(run), _forward(tape, run, again))
        if operation.differentiable:
            sweep.run(operation)
    return max(sweep.most, 0)


def _made(operations: Sequence[Operation]) -> set[int]:
    return {storage for operation in operations for storage in operation.made}


def _forward(tape: Tape, operations: Sequence[Operation], kept: set[int]) -> Amount:
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    for number, operation in enumerate(operations):
        for storage in (*operation.made, *(value.storage for value in operation.reads), *operation.holds):
            last[storage] = number
            first.setdefault(storage, number)
    made = _made(operations)
    alive: Amount = 0
    total: Amount = sum(_bytes(tape, storage) for storage in first if storage in kept)
    ends: dict[int, list[int]] = {}
    begins: dict[int, list[int]] = {}
    for storage, number in first.items():
        begins.setdefault(number if storage in made else 0, []).append(storage)
        if storage not in kept:
            ends.setdefault(last[storage], []).append(storage)
    most: Amount = 0
    for number in range(len(operations)):
        alive = alive + sum(_bytes(tape, storage) for storage in begins.get(number, ()))
        most = max(most, alive)
        alive = alive - sum(_bytes(tape, storage) for storage in ends.get(number, ()))
    return max(most - total, 0)


def _bytes(tape: Tape, storage: int) -> Amount:
    """Bytes of a storage: of kept ones all that there are, of others one, since experts run one after the other."""
    each = tape.storages[storage]
    if each.is_own:
        return 0
    return each.num_bytes * (each.times if each.kept_by or each.recomputed else 1)


@dataclass(slots=True, eq=False)
class _Buffer:
    num_bytes: Amount
    readers: int = 1


@dataclass(slots=True)
class _Backward:
    """The state of the sweep: bytes beside those kept and made again, the most of them, gradients, needs."""

    tape: Tape
    now: Amount = 0
    most: Amount = 0
    gradients: dict[int, _Buffer] = field(default_factory=dict)
    needs: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        operations = self.tape.operations
        for operation in operations:
            for storage in set(operation.saved):
                self.needs[storage] = self.needs.get(storage, 0) + 1
        # What is made again is not there yet.
        again = {each for operation in operations if operation.region for each in operation.made}
        self.now = -sum(
            _bytes(self.tape, each)
            for each in again
            if self.tape.storages[each].recomputed and not self.tape.storages[each].kept_by
        )
        last = operations[-1] if operations else None
        result = None if last is None else last.made[0]
        if last is not None and last.differentiable and result is not None and self.tape.storages[result].shape:
            if self._is_loss(result):
                return
            self._hold(result, self.tape.storages[result].num_bytes)

    def _is_loss(self, storage: int) -> bool:
        return self.tape.storages[storage].name.rpartition(".")[2] == "loss"

    def make_again(self, made: set[int], temporary: Amount) -> None:
        """A checkpoint's second run, with what it holds meanwhile."""
        self.now = self.now + sum(
            _bytes(self.tape, each)
            for each in made
            if self.tape.storages[each].recomputed and not self.tape.storages[each].kept_by
        )
        self.most = max(self.most, self.now + temporary)

    def run(self, operation: Operation) -> None:
        """The backward of one operation."""
        storages = self.tape.storages
        incoming = [self.gradients.pop(each) for each in set(operation.made) if each in self.gradients]
        remade: Amount = sum(storages[value.storage].num_bytes for value in operation.remade)
        extra: Amount = remade
        for group in operation.beside:
            self.most = max(self.most, self.now + sum(storages[each].num_bytes for each in group))
        if operation.over:  # the gradient takes the place of what was kept
            for value in operation.reads[:1]:
                self.gradients[value.storage] = _Buffer(storages[value.storage].num_bytes)
                self.needs.pop(value.storage, None)
        else:
            for number, value in enumerate(operation.reads):
                if value.requires_grad and not storages[value.storage].is_own:
                    extra = extra + self._give(value.storage, incoming, passes=number < operation.passes)
        self.most = max(self.most, self.now + extra)
        for buffer in incoming:
            self._release(buffer)
        for storage in set(operation.saved):
            if storage not in self.needs:
                continue
            self.needs[storage] -= 1
            if self.needs[storage] == 0:
                self.now = self.now - _bytes(self.tape, storage)

    def _give(self, storage: int, incoming: list[_Buffer], *, passes: bool) -> Amount:
        """A gradient for a storage; returns the bytes that are needed only until it is added to another.

        An operation has let go of the gradient of its result when its own are added to what is there.
        """
        size = self.tape.storages[storage].num_bytes
        before = self.gradients.get(storage)
        if before is None:
            if passes and incoming:
                incoming[0].readers += 1
                self.gradients[storage] = incoming[0]
            else:
                self._hold(storage, size)
            return 0
        if before.readers - (before in incoming) > 1:  # somebody else reads it: the sum is a tensor of its own
            self._release(before)
            self._hold(storage, size)
        return 0 if passes and incoming else size

    def _hold(self, storage: int, size: Amount) -> None:
        self.gradients[storage] = _Buffer(size)
        self.now = self.now + size
        self.most = max(self.most, self.now)

    def _release(self, buffer: _Buffer) -> None:
        buffer.readers -= 1
        if buffer.readers == 0:
            self.now = self.now - buffer.num_bytes
