"""Whether a copy is needed: by whom its elements are read, and whether they could have read the original."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from torchledger.auditor.copies_accepted import answer, is_flash_backward
from torchledger.auditor.copies_seen import Operand, Seen, SeenStep
from torchledger.formats import strides
from torchledger.tracer.pricing.touched import FREE
from torchledger.tracer.signature import TensorMeta
from torchledger.tracer.storages import Entry

Judgement: TypeAlias = Literal["needed", "avoidable", "unused", "unknown"]
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a copy is needed, and why.

    Attributes:
        judgement: `needed`: someone reads it who could not read the original. `avoidable`: all who read it could have
            read the original where it lies. `unused`: nobody reads it and it is not kept. `unknown`: someone reads it
            of whom that is not known.
        why: who, in a few words.
    """

    judgement: Judgement
    why: str


@dataclass(frozen=True, slots=True)
class _Swap:
    """A tensor that would lie otherwise: what it is, and the strides it would have."""

    entry: Entry
    meta: TensorMeta
    stride: tuple[int, ...]
    since: int


class Readers:
    """Who reads which storage, and who writes it."""

    def __init__(self, step: SeenStep) -> None:
        self._step = step
        self._settled: set[tuple[int, tuple[int, ...]]] = set()  # storages and strides that one verdict has met
        self._uses: dict[int, list[tuple[Seen, int, Operand]]] = defaultdict(list)
        for seen in step.operations:
            for position, operand in enumerate(seen.operands):
                if seen.op not in FREE:  # another view: what reads that is here by its own geometry
                    self._uses[id(operand.entry)].append((seen, position, operand))

    def verdict(self, copy: Seen) -> Verdict:
        """Whether a copy of one tensor is needed: one of another layout, a duplicate, an expansion."""
        self._settled.clear()
        made = self._step.made.get(copy.index, ())
        if len(made) != 1 or not copy.operands or len(copy.results) != 1:
            return Verdict("unknown", "it makes no storage of its own")
        source, result, entry = copy.operands[0], copy.results[0], made[0]
        uses = self._after(entry, copy.index)
        if not uses:
            if entry.freed is None:
                return Verdict("unknown", "kept, and read by nothing in this step")
            return Verdict("unused", "nothing reads it")
        last = max(seen.index for seen, _, _ in uses)
        if any(operand.is_written for _, _, operand in uses):
            return Verdict("needed", "it is written in place afterwards")
        if any(copy.index < seen.index <= last and o.is_written for seen, _, o in self._uses[id(source.entry)]):
            return Verdict("needed", "the original is written in place while this is still read")
        if entry.freed is None:
            return Verdict("unknown", "kept beyond the step")
        lying = _expanded(source.meta, result.shape)
        if lying is None:
            return Verdict("needed", "it has another shape than the original")
        if not strides.is_contiguous(result.shape, result.stride):
            if lying == result.stride:
                return Verdict("avoidable", _names(uses))
            return Verdict("unknown", "its result is not contiguous")
        return self._all_take(_Swap(entry, result, lying, copy.index), 0) or Verdict("avoidable", _names(uses))

    def _after(self, entry: Entry, index: int) -> list[tuple[Seen, int, Operand]]:
        return [use for use in self._uses[id(entry)] if use[0].index > index]

    def _all_take(self, swap: _Swap, depth: int) -> Verdict | None:
        """Nothing where every reader takes the tensor with the other strides; else who does not."""
        if depth > _DEEPEST:
            return Verdict("unknown", "too many operations follow")
        if (met := (id(swap.entry), swap.stride)) in self._settled:
            return None
        self._settled.add(met)
        for seen, position, operand in self._after(swap.entry, swap.since):
            found = self._takes(swap, seen, position, operand.meta, depth)
            if found is not None:
                return found
        return None

    def _takes(self, swap: _Swap, seen: Seen, position: int, meta: TensorMeta, depth: int) -> Verdict | None:
        who = f"{seen.op} ({seen.call.phase})" if seen.call.phase != "forward" else seen.op
        if meta.dtype != swap.meta.dtype:
            return Verdict("unknown", f"{who} reads it as another number format")
        carried = strides.carried(swap.meta.shape, swap.stride, meta.shape, meta.stride, meta.offset - swap.meta.offset)
        if carried is None:
            return Verdict("needed", f"{who} reads it as {meta.shape}, which no view of the original is")
        if is_flash_backward(seen.func):
            return None  # it takes what the forward kernel took
        other = replace(meta, stride=carried[0])
        match answer(seen.func, position, other):
            case "copies":
                return Verdict("needed", f"{who} would copy it itself")
            case "unknown":
                return Verdict("unknown", f"{who} reads it")
            case "follows":
                return self._followed(seen, other, depth)
            case _:
                return None

    def _followed(self, seen: Seen, operand: TensorMeta, depth: int) -> Verdict | None:
        """Whether those who read a result that lies as its operand does take that."""
        for result, entry in zip(seen.results, self._step.made.get(seen.index, ()), strict=False):
            if result.shape != operand.shape:
                continue  # broadcast: laid out by the larger operand
            stride = strides.clone_stride(operand.shape, operand.stride)
            if stride == result.stride:
                continue
            if not strides.is_contiguous(result.shape, result.stride):
                return Verdict("unknown", f"{seen.op} makes of it what lies in an order of its own")
            found = self._all_take(_Swap(entry, result, stride, seen.index), depth + 1)
            if found is not None:
                return found
        return None


def _expanded(meta: TensorMeta, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Strides with which a tensor is expanded to a shape; `None` where it cannot be."""
    new = len(shape) - len(meta.shape)
    sizes, steps = (1,) * new + meta.shape, (0,) * new + meta.stride
    if new < 0 or any(size not in {1, wanted} for size, wanted in zip(sizes, shape, strict=True)):
        return None
    return tuple(step if size == wanted else 0 for size, step, wanted in zip(sizes, steps, shape, strict=True))


def _names(uses: Iterable[tuple[Seen, int, Operand]]) -> str:
    names = dict.fromkeys(seen.op for seen, _, _ in uses)
    return f"{', '.join(names)} could read the original"
