"""`Tape`: the forward pass of a model walked with sizes alone.

A formula here is a function that reads like the module it counts: it takes values (sizes without numbers), says which
operations run, which storages each keeps for its gradient, and what its backward pass runs. The tape turns that into
lines and into the list of kept activations. Nothing is executed, and sizes may be symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torchledger.formula.layout import Sizes, contiguous, merged
from torchledger.ledger import Amount, GradientOf, Line, Phase
from torchledger.ops import Piece, copy, gradient_accumulation

#: Bytes of an element. A step needs no other formats; FP64 is what autograd wraps Python's numbers in.
ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "bf16": 2, "int64": 8, "bool": 1}


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor by its sizes.

    Attributes:
        shape: sizes.
        strides: in elements.
        number_format: format of its elements.
        storage: index of the storage it lies in; views share one.
        requires_grad: whether a gradient flows back to it.
    """

    shape: Sizes
    strides: Sizes
    number_format: str
    storage: int
    requires_grad: bool = True

    @property
    def num_elements(self) -> Amount:
        """Product of its sizes."""
        product: Amount = 1
        for size in self.shape:
            product = product * size
        return product

    @property
    def element_bytes(self) -> int:
        """Bytes of one element."""
        return ELEMENT_BYTES[self.number_format]

    def permuted(self, *order: int) -> Value:
        """Its dimensions in another order; the storage is the same."""
        return replace(self, shape=tuple(self.shape[i] for i in order), strides=tuple(self.strides[i] for i in order))

    def parted(self, *sizes: Amount) -> Value:
        """Its last dimension as several."""
        steps = tuple(step * self.strides[-1] for step in contiguous(sizes))
        return replace(self, shape=(*self.shape[:-1], *sizes), strides=(*self.strides[:-1], *steps))

    def sliced(self, size: Amount) -> Value:
        """A part of its last dimension, in the same storage."""
        return replace(self, shape=(*self.shape[:-1], size))

    def repeated(self, dimension: int, times: Amount) -> Value:
        """A new dimension that repeats it without a copy (stride 0)."""
        shape, strides = list(self.shape), list(self.strides)
        shape.insert(dimension, times)
        strides.insert(dimension, 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True, slots=True)
class Activation:
    """A storage kept for the backward pass.

    Attributes:
        name: module and what it is (`layers.*.mlp.up: output`).
        shape: sizes of the tensor it was made for.
        number_format: format of its elements.
        num_bytes: bytes of one of them.
        times: how many there are.
        kept_by: the operation that keeps it first.
    """

    name: str
    shape: Sizes
    number_format: str
    num_bytes: Amount
    times: Amount
    kept_by: str

    @property
    def total_bytes(self) -> Amount:
        """Bytes of all of them."""
        return self.num_bytes * self.times


@dataclass(slots=True)
class _Storage:
    name: str
    shape: Sizes
    number_format: str
    times: Amount
    is_own: bool  # a parameter's, a buffer's or the batch's own storage is never an activation
    kept_by: str = ""
    kept_at: int = 0  # forward entry before which it was first kept
    recomputed: bool = False

    @property
    def num_bytes(self) -> Amount:
        product: Amount = ELEMENT_BYTES[self.number_format]
        for size in self.shape:
            product = product * size
        return product


@dataclass(frozen=True, slots=True)
class _Entry:
    module: str
    piece: Piece
    number_format: str
    times: Amount
    storages: tuple[int, ...] = ()

    def line(self, phase: Phase, gradient_of: GradientOf | None, bytes_kept: Amount) -> Line:
        return self.piece.line(
            self.module,
            phase=phase,
            gradient_of=gradient_of,
            number_format=self.number_format,
            times=self.times,
            bytes_kept=bytes_kept,
        )


class Tape:
    """What a walk leaves behind.

    Args:
        precision: `fp32`, or `bf16` for matmuls under autocast.
    """

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.assumptions: list[str] = []
        self._prefix = ""
        self._times: Amount = 1
        self._storages: list[_Storage] = []
        self._forward: list[_Entry] = []
        self._backward: list[list[_Entry]] = []
        self._recompute: list[_Entry] = []
        self._last_save = 0
        self._checkpointing = False

    @contextmanager
    def inside(self, path: str, times: Amount = 1) -> Iterator[None]:
        """Everything in here belongs to the module `path` and runs `times` as often."""
        prefix, before = self._prefix, self._times
        self._prefix, self._times = f"{prefix}{path}." if path else prefix, before * times
        try:
            yield
        finally:
            self._prefix, self._times = prefix, before

    @contextmanager
    def checkpoint(self, kept: Sequence[Value]) -> Iterator[None]:
        """Keep `kept` only; what is saved in here is made again in the backward pass.

        The second run stops at the last tensor that is saved (non-reentrant checkpoint with early stop,
        torch/utils/checkpoint.py), so that operations after it run once.
        """
        start = len(self._forward)
        self._checkpointing, self._last_save = True, start
        try:
            yield
        finally:
            self._checkpointing = False
        for value in kept:
            self._keep("checkpoint", value, start)
        self._recompute += [replace(entry, storages=()) for entry in self._forward[start : self._last_save]]

    def matmul_format(self, operand: Value) -> str:
        """Format in which products of `operand` run: BF16 under autocast, its own otherwise."""
        return "bf16" if self.precision == "bf16" else operand.number_format

    def make(self, name: str, shape: Sequence[Amount], number_format: str, *, requires_grad: bool = True) -> Value:
        """A new contiguous storage."""
        sizes = tuple(shape)
        self._storages.append(_Storage(self._prefix + name, sizes, number_format, self._times, is_own=False))
        return Value(sizes, contiguous(sizes), number_format, len(self._storages) - 1, requires_grad)

    def given(self, name: str, shape: Sequence[Amount], number_format: str, *, requires_grad: bool = False) -> Value:
        """A tensor that is there before the step: a parameter, a buffer, the batch."""
        value = self.make(name, shape, number_format, requires_grad=requires_grad)
        self._storages[value.storage].is_own = True
        return value

    def receive(self, name: str, value: Value) -> Value:
        """The same tensor under the account of the module that receives it (a layer its predecessor's output)."""
        assert not self._storages[value.storage].kept_by, "its maker has no use for it any more"
        return self.make(name, value.shape, value.number_format, requires_grad=value.requires_grad)

    def save(self, op: str, *values: Value) -> None:
        """`op` keeps the storages of `values` for its gradient. Call it before `run` for inputs, after for outputs."""
        self._last_save = len(self._forward)
        for value in values:
            if self._checkpointing:
                self._storages[value.storage].recomputed = True
            else:
                self._keep(op, value, self._last_save)

    def save_number(self, op: str, name: str) -> Value:
        """`op` multiplies or divides by a Python number, which torch wraps in a tensor of 8 bytes and keeps.

        Saved-tensor hooks do not see it, so a checkpoint neither drops it nor waits for it.
        """
        number = self.make(name, (), "fp64", requires_grad=False)
        self._keep(op, number, len(self._forward))
        return number

    def _path(self, module: str) -> str:
        return (self._prefix + module).rstrip(".")

    def _keep(self, op: str, value: Value, position: int) -> None:
        storage = self._storages[value.storage]
        if not storage.kept_by:
            storage.kept_by, storage.kept_at = op, position

    def run(self, module: str, pieces: Sequence[Piece], number_format: str, *made: Value) -> None:
        """The pieces run in the forward pass; storages of `made` are accounted to the first."""
        storages = tuple(value.storage for value in made)
        for number, piece in enumerate(pieces):
            self._forward.append(
                _Entry(self._path(module), piece, number_format, self._times, storages if number == 0 else ())
            )

    def then(self, module: str, pieces: Sequence[Piece], number_format: str) -> None:
        """The pieces run in the backward pass of what was run last."""
        entries = [_Entry(self._path(module), piece, number_format, self._times) for piece in pieces]
        self._backward.append(entries)

    def fan_out(self, path: str, value: Value, readers: int) -> None:
        """`value` is read by several operations, whose gradients are added: `readers` - 1 adds an element."""
        if value.requires_grad and readers > 1:
            size = value.element_bytes
            self.then(path, gradient_accumulation(value.num_elements, element_bytes=size), value.number_format)
            self._backward[-1] *= readers - 1

    def copied(self, module: str, name: str, value: Value, number_format: str | None = None) -> Value:
        """A dense copy of `value`, in another format if one is given; its gradient is copied back."""
        target = value.number_format if number_format is None else number_format
        made = self.make(name, value.shape, target, requires_grad=value.requires_grad)
        op = "copy" if target == value.number_format else "cast"
        there = copy(
            value.num_elements, element_bytes=value.element_bytes, output_element_bytes=made.element_bytes, op=op
        )
        back = copy(
            value.num_elements, element_bytes=made.element_bytes, output_element_bytes=value.element_bytes, op=op
        )
        self.run(module, there, target, made)
        if value.requires_grad:
            self.then(module, back, value.number_format)
        return made

    def cast(self, module: str, name: str, value: Value, number_format: str) -> Value:
        """`value` in `number_format`: itself where it is in it, a copy otherwise."""
        return value if value.number_format == number_format else self.copied(module, name, value, number_format)

    def merge(self, module: str, name: str, value: Value, groups: Sequence[int]) -> Value:
        """`value` with runs of its dimensions merged, as a view where the layout allows it and as a copy otherwise."""
        shape, strides = merged(value.shape, value.strides, groups)
        if strides is not None:
            return replace(value, shape=shape, strides=strides)
        return replace(self.copied(module, name, value), shape=shape, strides=contiguous(shape))

    def lines(self) -> Iterator[Line]:
        """Forward in order, backward from the last operation to the first, then what is run again."""
        kept = self._kept_by_entry()
        for number, entry in enumerate(self._forward):
            yield entry.line("forward", None, kept.get(number, 0))
        for entry in self._recompute:
            yield entry.line("recompute", None, 0)
        for entries in reversed(self._backward):
            for entry in entries:
                yield entry.line("backward", None, 0)

    def activations(self, *, recomputed: bool = False) -> tuple[Activation, ...]:
        """The storages kept at the end of the forward pass, or those made again in the backward pass."""
        return tuple(
            Activation(
                each.name, each.shape, each.number_format, each.num_bytes, each.times, each.kept_by or "checkpoint"
            )
            for each in self._storages
            if not each.is_own and (each.recomputed and not each.kept_by if recomputed else each.kept_by)
        )

    def keeper(self, value: Value) -> str:
        """The operation that keeps the storage of `value`; empty where nothing does."""
        return self._storages[value.storage].kept_by

    def largest_storage(self) -> Amount:
        """Bytes of the largest tensor that is made."""
        return max((each.num_bytes for each in self._storages if not each.is_own), default=0)

    def largest_temporary(self) -> Amount:
        """Bytes of the largest tensor that is made and not kept."""
        return max((each.num_bytes for each in self._storages if not each.is_own and not each.kept_by), default=0)

    def _kept_by_entry(self) -> dict[int, Amount]:
        """Bytes kept by forward entry: the one that made the storage, or the one that first keeps a layer's input."""
        made = {storage: number for number, entry in enumerate(self._forward) for storage in entry.storages}
        kept: dict[int, Amount] = {}
        for number, each in enumerate(self._storages):
            if each.kept_by and not each.is_own:
                entry = made.get(number, each.kept_at)
                kept[entry] = kept.get(entry, 0) + each.num_bytes
        return kept
