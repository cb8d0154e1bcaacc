"""The first operation in which two runs differ, and how: what it was given, what it made, by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from torchledger.auditor.determinism_hash import tensor_hash
from torchledger.auditor.determinism_run import Run
from torchledger.auditor.determinism_watch import Captured, Seen

#: `order`: another operation ran; `argument`: it was called with another number; `data`: it was given other tensors,
#: though everything that torch had made before was equal; `result`: given the same, it made something else; `unknown`:
#: it made something else, and what it was given was not kept.
How: TypeAlias = Literal["order", "argument", "data", "result", "unknown"]


@dataclass(frozen=True, slots=True)
class Apart:
    """By how much tensors differ.

    Attributes:
        num_different: elements with other bits.
        num_elements: of how many.
        largest: the largest absolute difference; nothing where there is no finite one.
        relative: the largest difference as a share of the larger of the two values; nothing as above.
    """

    num_different: int
    num_elements: int
    largest: float | None
    relative: float | None


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two runs part.

    Attributes:
        number: of the operation, from 0.
        how: in what they differ there.
        one: the operation in the first run; nothing where that run is over.
        other: in the second run.
        num_operations: of the longer run.
        drew: whether it drew random numbers.
        apart: how much its results differ, where they were kept.
        repeats: whether two more runs differed in the same place; nothing where that was not tried.
    """

    number: int
    how: How
    one: Seen | None
    other: Seen | None
    num_operations: int
    drew: bool = False
    apart: Apart | None = None
    repeats: bool | None = None

    @property
    def seen(self) -> Seen:
        """The operation."""
        found = self.one or self.other
        assert found is not None, "one of the two runs has an operation there"
        return found


def first_difference(one: Run, other: Run) -> Difference | None:
    """Where two runs part; nothing where every operation was the same and made the same bits."""
    length = max(len(one.seen), len(other.seen))
    for number in range(length):
        a = one.seen[number] if number < len(one.seen) else None
        b = other.seen[number] if number < len(other.seen) else None
        if a == b:
            continue
        return Difference(number, _how(a, b), a, b, length, drew=number in one.drew)
    return None


def _how(one: Seen | None, other: Seen | None) -> How:
    if one is None or other is None or one[:4] != other[:4]:
        return "order"
    return "argument" if one.arguments != other.arguments else "unknown"


def looked_into(
    found: Difference, again: Callable[[int], Run], once_more: Callable[[int], Run], tries: int = 4
) -> Difference:
    """Run both sides again, and keep what the operation was given and made.

    Args:
        found: where they part.
        again: the first side anew, keeping the tensors of the operation of a number.
        once_more: the second side.
        tries: how often at most; a race does not show each time, and may show earlier.
    """
    if found.how != "unknown":
        return found
    at = found
    for _ in range(tries):
        one, other = again(at.number), once_more(at.number)
        now = first_difference(one, other)
        if now is None or now.number > at.number:
            continue
        if now.number < at.number or now.how != "unknown":
            at = now
            if now.how != "unknown":
                return replace(now, repeats=True)
            continue
        assert one.captured is not None, "the operation ran"
        assert other.captured is not None, "as above"
        how: How = "result" if _same(one.captured.inputs, other.captured.inputs) else "data"
        return replace(now, how=how, apart=_apart(one.captured, other.captured), repeats=True)
    return replace(at, repeats=False)


def _same(ones: tuple[Tensor, ...], others: tuple[Tensor, ...]) -> bool:
    return len(ones) == len(others) and all(
        a.shape == b.shape and a.dtype == b.dtype and tensor_hash(a) == tensor_hash(b)
        for a, b in zip(ones, others, strict=True)
    )


def _apart(one: Captured, other: Captured) -> Apart:
    """How far the results are apart, over all tensors that were made."""
    num_different, num_elements = 0, 0
    largest: list[float] = []
    relative: list[float] = []
    for a, b in zip(one.outputs, other.outputs, strict=True):
        num_elements += a.numel()
        if a.shape != b.shape or a.layout is not torch.strided:
            num_different += a.numel()
            continue
        wide = torch.complex128 if a.is_complex() else torch.float64
        x, y = a.to(wide), b.to(wide)
        # A zero with another sign differs as well, and one NaN from another does not.
        differs = ((x != y) & ~((x != x) & (y != y))) | (_negative(x) != _negative(y)) & (x == y)  # noqa: PLR0124  # NaN is what differs from itself
        num_different += int(differs.sum())
        gap = (x - y).abs()
        gap = gap[differs & gap.isfinite()]
        if gap.numel():
            size = torch.maximum(x.abs(), y.abs())[differs & (x - y).abs().isfinite()]
            largest.append(gap.max().item())
            relative.append((gap / size.clamp_min(torch.finfo(torch.float64).tiny)).max().item())
    return Apart(num_different, num_elements, max(largest, default=None), max(relative, default=None))


def _negative(values: Tensor) -> Tensor:
    return torch.signbit(values.real if values.is_complex() else values)
