"""`Tape`: the forward pass of a model walked with sizes alone.

A formula here is a function that reads like the module it counts: it takes values (sizes without numbers), says which
operations run, which storages each keeps for its gradient, and what its backward pass runs. The tape turns that into
lines, into the list of kept activations, and into what is alive beside them (`sweep`). Nothing is executed, and sizes
may be symbols.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from torchledger.formula.kernels import KERNELS, Kernels
from torchledger.formula.layout import contiguous, merged
from torchledger.formula.precision import FORMATS
from torchledger.formula.value import Activation, Value, num_bytes
from torchledger.ledger import Amount, GradientOf, Line, Phase
from torchledger.ops import Piece, copy, gradient_accumulation


@dataclass(slots=True)
class Storage:
    """Memory that values lie in.

    Attributes:
        name: module and what it is.
        shape: sizes of the tensor it was made for.
        number_format: format of its elements.
        times: how many there are.
        is_own: a parameter's, a buffer's or the batch's own storage, which is never an activation.
        kept_by: the operation that keeps it first; empty where none does.
        kept_at: forward entry before which it was first kept.
        recomputed: whether it is made again in the backward pass.
        num_bytes: bytes of one.
    """

    name: str
    shape: tuple[Amount, ...]
    number_format: str
    times: Amount
    is_own: bool
    num_bytes: Amount
    kept_by: str = ""
    kept_at: int = 0
    recomputed: bool = False


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as a sweep over the step's memory sees it.

    Attributes:
        reads: what it reads.
        made: storages that it makes, its result first.
        saved: storages that its gradient needs.
        remade: values that a compiler makes again for its gradient.
        differentiable: whether it runs backward at all.
        holds: storages that are alive meanwhile, by name of whoever calls it.
        passes: of so many of its first operands the gradient is that of its result, the same memory.
        over: its gradient is written over what it saved.
        region: number of the checkpoint that it runs in; 0 is none.
        beside: storages alive together in its backward pass, before it has made a gradient; one group at a time.
    """

    reads: tuple[Value, ...]
    made: tuple[int, ...]
    saved: tuple[int, ...]
    remade: tuple[Value, ...]
    differentiable: bool
    holds: tuple[int, ...]
    passes: int
    over: bool
    region: int
    beside: tuple[tuple[int, ...], ...] = ()


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


def _storages(values: Sequence[Value]) -> tuple[int, ...]:
    return tuple(value.storage for value in values)


def _wide(piece: Piece, times: Amount) -> Piece:
    """So many of it in one kernel: a grouped matmul is `b` products."""
    shape = tuple((name, size * times if name == "b" else size) for name, size in piece.shape)
    return replace(piece, work=piece.work * times, shape=shape)


class Tape:
    """What a walk leaves behind.

    Args:
        precision: `Recipe.precision`.
        kernels: which kernels run.
        trains: whether the parameters that are walked over are trained.
        lora_rank: rank of the adapters beside the linear layers of attention and MLP; 0 is none.
        lora_targets: those that have one; empty is all.
    """

    def __init__(
        self,
        precision: str,
        kernels: Kernels = KERNELS["cpu"],
        *,
        trains: bool = True,
        lora_rank: Amount = 0,
        lora_targets: tuple[str, ...] = (),
    ) -> None:
        self.formats = FORMATS[precision]
        self.kernels = kernels
        self.trains = trains
        self.lora_rank = lora_rank
        self.lora_targets = lora_targets
        self.assumptions: list[str] = []
        self.read_formats: dict[str, str] = {}  # of what the last layer's attention and MLP read
        self.storages: list[Storage] = []
        self.operations: list[Operation] = []
        self._prefix = ""
        self._times: Amount = 1
        self._group: Amount = 1
        self._forward: list[_Entry] = []
        self._backward: list[list[_Entry]] = []
        self._recompute: list[_Entry] = []
        self._last_save = 0
        self._region, self._num_regions = 0, 0
        self._results: list[tuple[range, tuple[Value, ...]]] | None = None
        self._num_matmuls = 0
        self.balances: bool | None = (
            None  # whether a load-balancing loss has a gradient; nothing: no mixture was walked
        )
        self.is_cast = False  # whether weights that are walked over were cast before, by another who reads them

    @contextmanager
    def inside(self, path: str, times: Amount = 1, *, grouped: bool = False, from_root: bool = False) -> Iterator[None]:
        """Everything in here belongs to the module `path` and runs `times` as often, or `times` wide in one kernel.

        The path goes on from where the tape is, or begins `from_root`.
        """
        prefix, before, group = self._prefix, self._times, self._group
        start = "" if from_root else prefix
        self._prefix = f"{start}{path}." if path else start
        self._times, self._group = (before, group * times) if grouped else (before * times, group)
        try:
            yield
        finally:
            self._prefix, self._times, self._group = prefix, before, group

    @contextmanager
    def checkpoint(self, kept: Sequence[Value], *, keeps_results: bool = False) -> Iterator[None]:
        """Keep `kept` only; what is saved in here is made again in the backward pass.

        With `keeps_results` the results of fused attention and of every other matmul, the first one on, are kept too
        and not made again (torchtitan's selective checkpoint by operation).

        The second run stops at the last tensor that is saved (non-reentrant checkpoint with early stop,
        torch/utils/checkpoint.py), so that operations after it run once.
        """
        start, first, outside = len(self._forward), len(self.operations), self._region
        self._num_regions += 1
        self._region, self._last_save = self._num_regions, start
        self._results, self._num_matmuls = ([] if keeps_results else None), 0
        try:
            yield
        finally:
            self._region = outside
            results, self._results = self._results or [], None
        if not any(operation.differentiable for operation in self.operations[first:]) and first != len(self.operations):
            return  # nothing in here has a gradient
        for value in kept:
            self._keep("checkpoint", value, start)
        there: set[int] = set()
        for entries, values in results:
            there.update(entries)
            for value in values:
                self._keep("checkpoint", value, entries.start)
        again = (number for number in range(start, self._last_save) if number not in there)
        self._recompute += [replace(self._forward[number], storages=()) for number in again]

    def matmul_format(self, operand: Value) -> str:
        """Format of the result of a product of `operand`: autocast's where it is on, its own otherwise."""
        return self.formats.value if self.formats.is_autocast else operand.number_format

    def product_format(self, number_format: str) -> str:
        """Format that the multiplications of such operands run in: TF32 in place of FP32 where that is asked for."""
        return self.formats.product if number_format == self.formats.value else number_format

    def make(self, name: str, shape: Sequence[Amount], number_format: str, *, requires_grad: bool = True) -> Value:
        """A new contiguous storage."""
        sizes = tuple(shape)
        size = num_bytes(sizes, number_format)
        self.storages.append(Storage(self._prefix + name, sizes, number_format, self._times, False, size * self._group))
        return Value(sizes, contiguous(sizes), number_format, len(self.storages) - 1, requires_grad)

    def given(self, name: str, shape: Sequence[Amount], number_format: str, *, requires_grad: bool = False) -> Value:
        """A tensor that is there before the step: a parameter, a buffer, the batch."""
        value = self.make(name, shape, number_format, requires_grad=requires_grad)
        self.storages[value.storage].is_own = True
        return value

    def receive(self, name: str, value: Value) -> Value:
        """The same tensor under the account of the module that receives it (a layer its predecessor's output)."""
        assert not self.storages[value.storage].kept_by, "its maker has no use for it any more"
        return self.make(name, value.shape, value.number_format, requires_grad=value.requires_grad)

    def op(
        self,
        path: str,
        name: str,
        forward: Sequence[Piece],
        *made: Value,
        reads: Sequence[Value],
        backward: Sequence[Piece] = (),
        keeps: Sequence[Value] = (),
        keeps_made: Sequence[Value] = (),
        trains: bool = False,
        number_format: str = "",
        holds: Sequence[Value] = (),
        passes: int = 0,
        over: bool = False,
        beside: Sequence[Sequence[Value]] = (),
    ) -> Value:
        """One operation: forward pieces run and make `made`; it keeps storages and runs backward if it has a gradient.

        Args:
            path: module below the present one.
            name: what keeps the storages.
            forward: pieces of the forward pass.
            made: its result, and whatever else it makes.
            reads: what it reads.
            backward: pieces of the backward pass.
            keeps: operands that it keeps.
            keeps_made: results that it keeps.
            trains: whether it trains a parameter of its own.
            number_format: format of the arithmetic; nothing is that of the result.
            holds: what is alive meanwhile, by a name of whoever calls it.
            passes: of so many of its first operands the gradient is that of its result, in the same memory.
            over: its gradient is written over what it kept.
            beside: what its backward pass makes for itself, by what is alive together.

        Returns:
            The result, without a gradient where nothing above it has one.
        """
        requires = trains or any(value.requires_grad for value in reads)
        number_format = number_format or made[0].number_format
        cheap = tuple(value for value in keeps if value.is_cheap) if requires else ()
        if requires:
            self.save(name, *(value for value in keeps if not value.is_cheap))
        self._run(name, path, forward, number_format, made)
        if requires:
            self.save(name, *(value for value in keeps_made if not value.is_cheap))
            self.then(path, backward, number_format)
        saved = tuple(value for value in (*keeps, *keeps_made) if not value.is_cheap) if requires else ()
        places = (_storages(made), _storages(saved), cheap, requires, _storages(holds), passes, over, self._region)
        self.operations.append(Operation(tuple(reads), *places, tuple(_storages(group) for group in beside)))
        return made[0] if made[0].requires_grad == requires else replace(made[0], requires_grad=requires)

    def _run(self, op: str, path: str, forward: Sequence[Piece], number_format: str, made: tuple[Value, ...]) -> None:
        first = len(self._forward)
        self.run(path, forward, number_format, *made)
        self._num_matmuls += op == "matmul"
        is_kept = op == "attention" or (op == "matmul" and self._num_matmuls % 2 == 1)
        if self._results is not None and is_kept:
            self._results.append((range(first, len(self._forward)), made))

    def save(self, op: str, *values: Value) -> None:
        """`op` keeps the storages of `values` for its gradient. Call it before `run` for inputs, after for outputs."""
        if not values:
            return
        self._last_save = len(self._forward)
        for value in values:
            if self._region:
                self.storages[value.storage].recomputed = True
            else:
                self._keep(op, value, self._last_save)

    def save_number(self, op: str, name: str) -> None:
        """`op` multiplies or divides by a Python number, which torch wraps in a tensor of 8 bytes of host memory.

        Saved-tensor hooks do not see it, so a checkpoint neither drops it nor waits for it. On CUDA it costs nothing.
        """
        if self.kernels.device == "cpu":
            self._keep(op, self.make(name, (), "fp64", requires_grad=False), len(self._forward))

    def _path(self, module: str) -> str:
        return (self._prefix + module).rstrip(".")

    def _keep(self, op: str, value: Value, position: int) -> None:
        storage = self.storages[value.storage]
        if not storage.kept_by:
            storage.kept_by, storage.kept_at = op, position

    def run(self, module: str, pieces: Sequence[Piece], number_format: str, *made: Value) -> None:
        """The pieces run in the forward pass; storages of `made` are accounted to the first."""
        storages = tuple(value.storage for value in made)
        path = self._path(module)
        pieces = pieces if self._group == 1 else [_wide(piece, self._group) for piece in pieces]
        for number, piece in enumerate(pieces):
            self._forward.append(_Entry(path, piece, number_format, self._times, storages if number == 0 else ()))

    def then(self, module: str, pieces: Sequence[Piece], number_format: str) -> None:
        """The pieces run in the backward pass of what was run last."""
        path = self._path(module)
        pieces = pieces if self._group == 1 else [_wide(piece, self._group) for piece in pieces]
        self._backward.append([_Entry(path, piece, number_format, self._times) for piece in pieces])

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
        n, size, other = value.num_elements, value.element_bytes, made.element_bytes
        there = copy(n, element_bytes=size, output_element_bytes=other, op=op)
        back = copy(n, element_bytes=other, output_element_bytes=size, op=op)
        self.run(module, there, target, made)
        if value.requires_grad:
            self.then(module, back, value.number_format)
        self.operations.append(
            Operation((value,), (made.storage,), (), (), value.requires_grad, (), 0, False, self._region)
        )
        return replace(made, is_cheap=value.is_cheap) if value.is_cheap else made

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
            for each in self.storages
            if not each.is_own and (each.recomputed and not each.kept_by if recomputed else each.kept_by)
        )

    def keeper(self, value: Value) -> str:
        """The operation that keeps the storage of `value`; empty where nothing does."""
        return self.storages[value.storage].kept_by

    def _kept_by_entry(self) -> dict[int, Amount]:
        """Bytes kept by forward entry: the one that made the storage, or the one that first keeps a layer's input."""
        made = {storage: number for number, entry in enumerate(self._forward) for storage in entry.storages}
        kept: dict[int, Amount] = {}
        for number, each in enumerate(self.storages):
            if each.kept_by and not each.is_own:
                entry = made.get(number, each.kept_at)
                kept[entry] = kept.get(entry, 0) + each.num_bytes
        return kept
