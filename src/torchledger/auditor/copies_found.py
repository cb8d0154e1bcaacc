"""The copies of a step: what each moves, where, and whether it is needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torchledger.auditor.copies_accepted import answer
from torchledger.auditor.copies_kind import CopyKind, kind_of
from torchledger.auditor.copies_needed import Readers, Verdict
from torchledger.auditor.copies_seen import Seen, SeenStep
from torchledger.ledger import fold_path
from torchledger.tracer import number_format
from torchledger.tracer.pricing import price

#: Methods that a user writes to get a copy; anything else copied because it had to, or because autocast said so.
ASKED_FOR = frozenset(
    {
        "contiguous", "clone", "reshape", "flatten", "repeat", "to", "float", "half", "bfloat16", "double", "type",
        "type_as", "copy_", "deepcopy", "tile",
    }
)  # fmt: skip
_JUDGED = frozenset({"layout", "duplicate", "repeat"})


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of the step.

    Attributes:
        seen: the operation.
        kind: what it does.
        copied_bytes: bytes that it makes.
        moved_bytes: bytes that it reads and writes, an expanded element read once; `None` where that is not known.
        verdict: whether it is needed.
    """

    seen: Seen
    kind: CopyKind
    copied_bytes: int
    moved_bytes: int | None
    verdict: Verdict

    @property
    def is_forward(self) -> bool:
        """Whether it is the model's own, and no gradient's or update's."""
        return self.seen.call.phase == "forward"

    @property
    def is_asked_for(self) -> bool:
        """Whether the user wrote it, rather than a kernel or autocast needing it."""
        return self.is_forward and self.seen.calling.function in ASKED_FOR

    @property
    def formats(self) -> str:
        """`fp32`, or `fp32 to bf16`."""
        made = [number_format(meta.dtype) for meta in self.seen.results[:1]]
        taken = [number_format(self.seen.operands[0].meta.dtype)] if self.seen.operands else []
        return " to ".join(dict.fromkeys((*(taken if self.kind == "cast" else ()), *made))) or "unknown"


@dataclass(frozen=True, slots=True)
class KernelCopy:
    """An operand that a kernel copies before it begins, because it does not lie in order.

    Attributes:
        seen: the operation.
        operand: which of its tensors.
        copied_bytes: bytes of the copy.
    """

    seen: Seen
    operand: int
    copied_bytes: int


def copies_of(step: SeenStep) -> tuple[Copy, ...]:
    """All copies of a step, in order."""
    readers = Readers(step)
    return tuple(_copies(step.operations, readers))


def _copies(operations: Iterable[Seen], readers: Readers) -> Iterator[Copy]:
    moved: dict[int, int | None] = {}
    for seen in operations:
        kind = kind_of(seen.op, tuple(each.meta for each in seen.operands), seen.results)
        if kind is None:
            continue
        signature = seen.call.signature
        if id(signature) not in moved:
            moved[id(signature)] = _moved(price(signature, seen.results).pieces)
        judged = kind in _JUDGED and seen.call.phase == "forward"
        verdict = readers.verdict(seen) if judged else Verdict("needed", "")
        yield Copy(
            seen,
            kind,
            sum(meta.num_elements * meta.dtype.itemsize for meta in _made(seen)),
            moved[id(signature)],
            verdict,
        )


def _made(seen: Seen) -> Iterable[Any]:
    """What a copy writes: its results, or the operands that it fills."""
    return seen.results or [each.meta for each in seen.operands if each.is_written]


def _moved(pieces: Iterable[Any]) -> int | None:
    amounts = [amount for piece in pieces for amount in (piece.work.bytes_read, piece.work.bytes_written)]
    return None if None in amounts else sum(amounts)


def kernel_copies_of(step: SeenStep) -> tuple[KernelCopy, ...]:
    """All operands that kernels copy for themselves, in order."""
    return tuple(
        KernelCopy(seen, position, operand.meta.num_elements * operand.meta.dtype.itemsize)
        for seen in step.operations
        for position, operand in enumerate(seen.operands)
        if answer(seen.func, position, operand.meta) == "copies"
    )


def rows_of(copies: Iterable[Copy], step_bytes: int | None) -> tuple[Mapping[str, Any], ...]:
    """The copies as rows, equal ones of equal layers as one, most bytes first.

    Columns: `source`, `code`, `module` (numbers of layers as `*`), `function`, `op`, `kind`, `phase`, `number_format`,
    `shape`, `times`, `copied_bytes`, `moved_bytes`, `share` (of the step's bytes), `judgement`, `why`.
    """
    groups: dict[tuple[Any, ...], list[Copy]] = {}
    for copy in copies:
        groups.setdefault(_place(copy), []).append(copy)
    rows = [_row(place, group, step_bytes) for place, group in groups.items()]
    return tuple(sorted(rows, key=lambda row: (-(row["moved_bytes"] or 0), row["source"])))


def _place(copy: Copy) -> tuple[Any, ...]:
    seen = copy.seen
    shape = seen.results[0].shape if seen.results else ()
    return (
        seen.call.source, seen.calling.code, fold_path(seen.call.module), seen.calling.function, seen.op, copy.kind,
        seen.call.phase, copy.formats, shape, copy.verdict.judgement, copy.verdict.why,
    )  # fmt: skip


_PLACE = (
    "source", "code", "module", "function", "op", "kind", "phase", "number_format", "shape", "judgement", "why",
)  # fmt: skip


def _row(place: tuple[Any, ...], group: list[Copy], step_bytes: int | None) -> Mapping[str, Any]:
    moved = total_moved(group)
    return {
        **dict(zip(_PLACE, place, strict=True)),
        "times": len(group),
        "copied_bytes": sum(each.copied_bytes for each in group),
        "moved_bytes": moved,
        "share": share_of(moved, step_bytes),
    }


def total_moved(copies: Iterable[Copy]) -> int | None:
    """Bytes that copies read and write together; `None` where one's are not known."""
    amounts = [each.moved_bytes for each in copies]
    return None if None in amounts else sum(amount for amount in amounts if amount is not None)


def share_of(num_bytes: int | None, of: int | None) -> float | None:
    """A share, `None` where either side is not known."""
    return None if num_bytes is None or not of else num_bytes / of
