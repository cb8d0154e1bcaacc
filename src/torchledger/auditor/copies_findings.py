"""What is wrong with a step's copies: those that could be left out, made twice, undone at once, or grow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

from torchledger.auditor.copies_found import Copy, KernelCopy, share_of, total_moved
from torchledger.auditor.copies_seen import SeenStep
from torchledger.ledger import Finding, fold_path
from torchledger.units import format_bytes, format_percent

#: Shares of the step's bytes: below the first nothing is harmed, below the second a needed copy is not worth a word.
HARMFUL_SHARE = 0.001
TELLING_SHARE = 0.01

_INSTEAD: Mapping[str, str] = {
    "contiguous": "leave `.contiguous()` out: all that reads the result takes the tensor as it lies",
    "clone": "leave `.clone()` out: neither the copy nor the original is written while the copy is read",
    "reshape": "keep the tensor as it was: all that reads the result could have read the original",
    "repeat": "`expand` instead of `repeat`: a size of 1 is repeated without a copy, and all that reads it broadcasts",
    "expand": "leave the copy after `expand` out: all that reads the result broadcasts",
}


@dataclass(frozen=True, slots=True)
class _Group:
    """Copies of one line that are wrong in one way."""

    copies: tuple[Copy, ...]
    message: str
    remedy: str
    severity: Literal["warning", "note"] = "warning"
    saved: tuple[Copy, ...] | None = None

    @property
    def too_many(self) -> tuple[Copy, ...]:
        """Those that could be left out."""
        return self.copies if self.saved is None else self.saved


def findings_of(
    step: SeenStep, copies: tuple[Copy, ...], kernels: tuple[KernelCopy, ...], step_bytes: int | None
) -> tuple[Finding, ...]:
    """The findings, warnings first, then by bytes."""
    groups = [
        *_avoidable(copies),
        *_round_trips(step, copies),
        *_again(step, copies),
        *_rejoined(copies),
        *_growing(step, copies),
        *_paddings(copies, step_bytes),
        *_for_products(copies, step_bytes),
    ]
    found = [_finding(group, step_bytes) for group in groups]
    found += _by_kernels(kernels, step_bytes)
    order = {"error": 0, "warning": 1, "note": 2}
    return tuple(sorted(found, key=lambda each: (order[each.severity], -(each.evidence["moved_bytes"] or 0))))


def _finding(group: _Group, step_bytes: int | None) -> Finding:
    first = group.copies[0].seen
    moved = total_moved(group.too_many)
    share = share_of(moved, step_bytes)
    harms = share is None or share >= HARMFUL_SHARE
    modules = dict.fromkeys(each.seen.call.module for each in group.copies)
    code = f" (`{first.calling.code}`)" if first.calling.code else ""
    return Finding(
        "copies",
        group.severity if harms else "note",
        first.call.source or fold_path(first.call.module),
        f"{group.message}{code}: {len(group.too_many):,} × a step, "
        f"{format_bytes(moved)} moved, {format_percent(share)} of the step's bytes",
        group.remedy,
        {
            "modules": tuple(modules),
            "times": len(group.too_many),
            "copied_bytes": sum(each.copied_bytes for each in group.too_many),
            "moved_bytes": moved,
            "share": share,
            "shape": first.results[0].shape if first.results else (),
            "number_format": group.copies[0].formats,
        },
    )


def _grouped(copies: Iterable[Copy], key: Callable[[Copy], Any] = lambda _: None) -> Iterator[tuple[Copy, ...]]:
    """Copies by their line of source, whichever module ran it."""
    groups: dict[Any, list[Copy]] = {}
    for copy in copies:
        seen = copy.seen
        place = (seen.call.source or fold_path(seen.call.module), seen.calling, copy.kind, key(copy))
        groups.setdefault(place, []).append(copy)
    return (tuple(group) for group in groups.values())


def _avoidable(copies: Iterable[Copy]) -> Iterator[_Group]:
    """Copies that the user asked for and nobody needs."""
    asked = [each for each in copies if each.is_asked_for and each.verdict.judgement in {"avoidable", "unused"}]
    for group in _grouped(asked, lambda each: each.verdict):
        copy = group[0]
        name = copy.seen.calling.function
        if copy.verdict.judgement == "unused":
            yield _Group(group, f"`{name}` makes a copy that nothing reads", "leave it out")
            continue
        why = copy.verdict.why
        remedy = _INSTEAD.get("expand" if copy.kind == "repeat" and name != "repeat" else name, "leave the copy out")
        yield _Group(group, f"`{name}` copies what could have been read where it lies; {why}", remedy)


def _round_trips(step: SeenStep, copies: Iterable[Copy]) -> Iterator[_Group]:
    """Casts of what was just cast from the same format, with nothing in between."""
    casts = [each for each in copies if each.kind == "cast" and each.is_forward]
    made = {id(entry): cast for cast in casts for entry in step.made.get(cast.seen.index, ())}
    back: list[Copy] = []
    for cast in casts:
        before = made.get(id(cast.seen.operands[0].entry)) if cast.seen.operands else None
        if before is None or not cast.seen.results or cast.seen.operands[0].version != 0:
            continue
        if before.seen.operands[0].meta.dtype == cast.seen.results[0].dtype:
            back.append(cast)
    for group in _grouped(back, lambda each: each.formats):
        low, high = group[0].formats.split(" to ")
        narrow = group[0].seen.operands[0].meta.dtype.itemsize < group[0].seen.results[0].dtype.itemsize
        loss = "; what it is rounded to on the way is all that is left" if narrow else ""
        yield _Group(
            group,
            f"cast to {low} and straight back to {high}{loss}",
            f"use the {high} tensor that it was made from, or let what follows run in {low}",
            "warning" if group[0].is_asked_for else "note",
        )


def _again(step: SeenStep, copies: Iterable[Copy]) -> Iterator[_Group]:
    """Equal copies of one tensor that has not changed in between."""
    written = {id(o.entry) for seen in step.operations for o in seen.operands if o.is_written}
    same: dict[Any, list[Copy]] = {}
    for copy in copies:
        if copy.kind not in {"layout", "cast", "repeat"} or not copy.is_forward or len(copy.seen.operands) != 1:
            continue
        entries, (operand,) = step.made.get(copy.seen.index, ()), copy.seen.operands
        if not entries or any(id(entry) in written for entry in entries):
            continue
        result = copy.seen.results[0]
        same.setdefault((id(operand.entry), operand.version, operand.meta, result), []).append(copy)
    later = [copy for group in same.values() for copy in group[1:]]
    firsts = {copy.seen.index: group[0] for group in same.values() for copy in group[1:]}
    for group in _grouped(later, lambda each: each.formats):
        first = firsts[group[0].seen.index]
        named = first.seen.operands[0].entry.name
        what = f"the {named}" if named else "the same tensor"
        kind = f"cast from {first.formats}" if first.kind == "cast" else "copied alike"
        yield _Group(
            group,
            f"{what} is {kind} once more, after {first.seen.call.source or 'before'}",
            "copy it once and use that copy"
            if group[0].is_asked_for
            else "autocast casts an activation anew for every operation that reads it: cast it once before them",
            "warning" if group[0].is_asked_for else "note",
        )


def _rejoined(copies: Iterable[Copy]) -> Iterator[_Group]:
    """Pieces of one tensor that are joined again as they lay."""
    joined = [each for each in copies if each.kind == "join" and each.is_forward and _lies_joined(each)]
    for group in _grouped(joined):
        yield _Group(
            group,
            f"`{group[0].seen.calling.function or 'cat'}` joins neighbouring pieces of one tensor, which lie joined",
            "use the tensor that they were cut from, or a slice of it",
        )


def _lies_joined(join: Copy) -> bool:
    operands = join.seen.operands
    if join.seen.op != "cat" or len(operands) < 2 or len({id(each.entry) for each in operands}) > 1:
        return False
    first, result = operands[0].meta, join.seen.results[0]
    if any(each.meta.stride != first.stride or each.version != operands[0].version for each in operands):
        return False
    grown = [d for d, size in enumerate(result.shape) if size != first.shape[d]]
    if len(grown) != 1:
        return False
    (dimension,) = grown
    return all(
        two.meta.offset - one.meta.offset == one.meta.shape[dimension] * first.stride[dimension]
        for one, two in pairwise(operands)
    )


def _growing(step: SeenStep, copies: Iterable[Copy]) -> Iterator[_Group]:
    """A tensor that a loop makes longer by joining: every turn copies all that is there."""
    joins = [each for each in copies if each.kind == "join" and each.is_forward]
    made = {id(entry): join for join in joins for entry in step.made.get(join.seen.index, ())}
    turns: dict[int, int] = {}
    grown: list[Copy] = []
    for join in joins:
        before = next((made[id(o.entry)] for o in join.seen.operands if id(o.entry) in made), None)
        if before is not None and before.seen.call.source == join.seen.call.source:
            turns[join.seen.index] = turns.get(before.seen.index, 1) + 1
            grown.append(join)
    for group in _grouped(grown):
        longest = max(turns[each.seen.index] for each in group)
        if longest >= _TURNS:
            yield _Group(
                group,
                f"a tensor grows by joining, {longest} times over: each time all that is there is copied again",
                "collect the pieces in a list and join once, or write into a tensor made in its final size",
            )


_TURNS = 3


def _paddings(copies: Iterable[Copy], step_bytes: int | None) -> Iterator[_Group]:
    """Slices of one tensor, whose gradients are each filled up with zeros and then added."""
    padded = [each for each in copies if each.kind == "padding" and each.seen.call.phase == "backward"]
    for group in _grouped(padded, lambda each: each.seen.results[:1]):
        share = share_of(total_moved(group), step_bytes)
        if len(group) > 1 and share is not None and share >= TELLING_SHARE:
            yield _Group(
                group,
                "the gradient of each slice is filled up with zeros to the size of the whole",
                "where slices make up a whole, take them by one `split`, `chunk` or `unbind`, whose gradient is one "
                "copy",
                "note",
            )


def _for_products(copies: Iterable[Copy], step_bytes: int | None) -> Iterator[_Group]:
    """Operands that a batched product had laid out anew."""
    asked = {"matmul", "einsum", "@", "bmm", "tensordot"}
    laid = [
        each for each in copies if each.kind in {"layout", "repeat"} and each.is_forward
        and each.seen.calling.function in asked
    ]  # fmt: skip
    for group in _grouped(laid):
        share = share_of(total_moved(group), step_bytes)
        if share is not None and share >= TELLING_SHARE:
            yield _Group(
                group,
                f"`{group[0].seen.calling.function}` copies its operands, whose batch dimensions do not lie as one",
                "torch.nn.functional.scaled_dot_product_attention reads queries, keys and values where they lie",
                "note",
            )


def _by_kernels(kernels: Iterable[KernelCopy], step_bytes: int | None) -> Iterator[Finding]:
    """Operands that kernels copy for themselves."""
    groups: dict[Any, list[KernelCopy]] = {}
    for each in kernels:
        call = each.seen.call
        groups.setdefault((call.source, fold_path(call.module), each.seen.op, call.phase), []).append(each)
    for (source, module, op, phase), group in groups.items():
        copied = sum(each.copied_bytes for each in group)
        share = share_of(2 * copied, step_bytes)
        if share is None or share < TELLING_SHARE:
            continue
        meta = group[0].seen.operands[group[0].operand].meta
        yield Finding(
            "copies",
            "note",
            source or module,
            f"{op} ({phase}) copies its operand of {meta.shape} before it begins, because it lies with strides "
            f"{meta.stride}: {len(group):,} × a step, {format_bytes(2 * copied)} moved, "
            f"{format_percent(share)} of the step's bytes",
            "let what makes the tensor lay it out in order, or run the kernel before the dimensions are swapped",
            {
                "modules": tuple(dict.fromkeys(each.seen.call.module for each in group)),
                "times": len(group),
                "copied_bytes": copied,
                "moved_bytes": 2 * copied,
                "share": share,
            },
        )
