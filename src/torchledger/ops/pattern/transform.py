"""`rearrange`, `repeat` and `reduce`, step by step as einops takes them: view or copy, bytes, FLOPs, the torch code.

einops takes a tensor apart (`reshape`), orders its axes (`permute`), reduces those that go, adds those that are new
(`unsqueeze`, `expand`) and joins axes again (`reshape`). Only a `reshape` copies, and only where strides leave it no
other way; most copies are in the last one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal, TypeAlias

from torchledger.ops.pattern.errors import PatternError, refuse
from torchledger.ops.pattern.layout import Layout
from torchledger.ops.pattern.text import Operation, Pattern, parse, size_of_nameless
from torchledger.ops.pattern.viewing import copied, why_no_view
from torchledger.ops.piece import Piece, moved
from torchledger.ops.reduction import reduction as reduction_of_rows

Reduction: TypeAlias = Literal["min", "max", "sum", "mean", "prod", "any", "all"]

#: What einops can reduce by, with torch's method. The last three take one dimension at a time.
REDUCTIONS: Mapping[str, str] = {
    "min": "amin", "max": "amax", "sum": "sum", "mean": "mean", "prod": "prod", "any": "any", "all": "all",
}  # fmt: skip
_ONE_AT_A_TIME = ("prod", "any", "all")
_BOOLEAN = ("any", "all")
_SUMMED = ("sum", "prod")


@dataclass(frozen=True, slots=True)
class Step:
    """One call on a tensor.

    Attributes:
        code: what is written behind the tensor.
        after: where the elements of the result lie.
        pieces: what it costs; nothing for a view.
        reason: why it copies, where it does.
    """

    code: str
    after: Layout
    pieces: tuple[Piece, ...] = ()
    reason: str = ""

    @property
    def is_view(self) -> bool:
        """Whether the result shares the storage."""
        return not self.pieces


@dataclass(frozen=True, slots=True)
class Transformed:
    """What a pattern does to a tensor.

    Attributes:
        operation: `rearrange`, `repeat`, or the name of a reduction.
        pattern: what was asked.
        sizes: of every named axis.
        before: the tensor.
        steps: calls in their order; none where nothing is to do.
        element_bytes: bytes of an element of the tensor.
        result_element_bytes: of the result (1 where `any` or `all` took an axis).
    """

    operation: str
    pattern: str
    sizes: Mapping[str, int]
    before: Layout
    steps: tuple[Step, ...]
    element_bytes: int
    result_element_bytes: int

    @property
    def after(self) -> Layout:
        """The result."""
        return self.steps[-1].after if self.steps else self.before

    @property
    def is_view(self) -> bool:
        """Whether the result shares the tensor's storage."""
        return all(step.is_view for step in self.steps)

    @property
    def copies(self) -> tuple[Step, ...]:
        """The steps that move elements and compute nothing."""
        return tuple(step for step in self.steps if any(piece.kind == "copy" for piece in step.pieces))

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What all steps cost."""
        return tuple(piece for step in self.steps for piece in step.pieces)

    @property
    def contiguous_pieces(self) -> tuple[Piece, ...]:
        """What a `.contiguous()` behind it would cost."""
        return () if self.after.is_contiguous else copied(self.after, self.result_element_bytes)

    @property
    def code(self) -> str:
        """The same in torch, on a tensor `x`."""
        return "x" + "".join(step.code for step in self.steps)


def transform(
    text: str,
    operation: str,
    sizes: Mapping[str, int],
    *,
    shape: Sequence[int] | None = None,
    stride: Sequence[int] | None = None,
    element_bytes: int = 4,
    summed_bytes: int | None = None,
) -> Transformed:
    """What einops does with a pattern.

    Args:
        text: the pattern.
        operation: `rearrange`, `repeat`, or one of `REDUCTIONS`.
        sizes: of axes by name; those that follow from the shape may be left out.
        shape: of the tensor; what the sizes make where nothing is given.
        stride: of the tensor; contiguous where nothing is given.
        element_bytes: bytes of an element.
        summed_bytes: of an element of a sum or product, where they differ (torch sums integers in 64 bits).

    >>> split = transform("b s (h d) -> b h s d", "rearrange", {"b": 2, "s": 3, "h": 4, "d": 5})
    >>> split.is_view, split.after.stride, split.code
    (True, (60, 5, 20, 1), 'x.view(2, 3, 4, 5).permute(0, 2, 1, 3)')
    >>> back = transform("b h s d -> b s (h d)", "rearrange", {"b": 2, "s": 3, "h": 4, "d": 5}, element_bytes=2)
    >>> back.is_view, back.pieces[0].work  # 2·3·4·5 elements of 2 bytes, read and written
    (False, Work(bytes_read=240, bytes_written=240))

    Raises:
        PatternError: pattern and sizes do not fit one another; every mistake.
        StrideError: a stride of another number of dimensions.
    """
    if operation not in ("rearrange", "repeat", *REDUCTIONS):
        raise PatternError(f"unknown reduction {operation!r}; einops has {', '.join(REDUCTIONS)}")
    kind: Operation = operation if operation in ("rearrange", "repeat") else "reduce"  # type: ignore[assignment]  # looked up
    pattern = parse(text, kind)
    if pattern.has_ellipsis:
        pattern = pattern.with_ellipsis_of(_covered(pattern, shape))
    known = resolved(pattern, sizes, shape)
    full = [prod(known[axis] for axis in group) for group in pattern.left]
    before = Layout.contiguous(full) if stride is None else Layout(tuple(full), tuple(stride))
    written = 1 if operation in _BOOLEAN else element_bytes
    if operation in _SUMMED and summed_bytes is not None:
        written = summed_bytes
    steps = _steps(pattern, operation, known, before, (element_bytes, written))
    if set(pattern.left_axes) <= set(pattern.right_axes):
        written = element_bytes  # nothing is reduced
    named = {axis: size for axis, size in known.items() if size_of_nameless(axis) is None}
    return Transformed(operation, text, named, before, tuple(steps), element_bytes, written)


def resolved(pattern: Pattern, sizes: Mapping[str, int], shape: Sequence[int] | None) -> dict[str, int]:
    """The size of every axis, from those given and from the shape.

    Raises:
        PatternError: a size is missing, is of no axis, or does not fit the shape; every mistake.
    """
    axes = dict.fromkeys((*pattern.left_axes, *pattern.right_axes))
    known = {axis: size for axis in axes if (size := size_of_nameless(axis) or sizes.get(axis)) is not None}
    mistakes = [
        f"{name} is no axis of {pattern.text!r}; it has {', '.join(a for a in axes if size_of_nameless(a) is None)}"
        for name in sizes
        if name not in axes
    ]
    if shape is not None and len(shape) != len(pattern.left):
        mistakes.append(
            f"{pattern.text!r} has {len(pattern.left)} dimensions on its left, the shape {tuple(shape)} not"
        )
    elif shape is not None:
        for group, size in zip(pattern.left, shape, strict=True):
            mistakes.extend(_fit(group, size, known))
    missing = [axis for axis in axes if axis not in known]
    if missing and not (mistakes and shape is not None):
        how = " ".join(f"{axis}=..." for axis in missing)
        mistakes.append(f"{len(missing)} size{'s are' if len(missing) > 1 else ' is'} missing; add {how}")
    refuse(mistakes)
    return known


def _fit(group: Sequence[str], size: int, known: dict[str, int]) -> list[str]:
    """Learn the one unknown axis of a group from the size of its dimension, or tell what does not fit."""
    unknown = [axis for axis in group if axis not in known]
    product = prod(known[axis] for axis in group if axis in known)
    written = f"({' '.join(axis.partition('#')[0] for axis in group)})"
    if len(unknown) > 1:
        return []  # told as missing
    if not unknown:
        return [] if product == size else [f"{written} is {product:,} by the sizes and {size:,} by the shape"]
    if size % product:
        return [f"{size:,} elements of {written} cannot be cut by {product:,}"]
    known[unknown[0]] = size // product
    return []


def _covered(pattern: Pattern, shape: Sequence[int] | None) -> int:
    if shape is None:
        raise PatternError(f"`...` in {pattern.text!r} stands for dimensions that only a shape tells; give the shape")
    others = len(pattern.left) - 1
    if len(shape) < others:
        raise PatternError(
            f"{pattern.text!r} has at least {others} dimensions on its left, the shape {tuple(shape)} not"
        )
    return len(shape) - others


def _steps(
    pattern: Pattern, operation: str, known: Mapping[str, int], before: Layout, each: tuple[int, int]
) -> list[Step]:
    """The calls of einops's `_apply_recipe`, in its order, on elements of so many bytes before and after reducing."""
    element_bytes, written = each
    left, right = pattern.left_axes, pattern.right_axes
    steps: list[Step] = []
    layout = before
    if any(len(group) != 1 for group in pattern.left):
        steps.append(reshaped(layout, [known[axis] for axis in left], element_bytes))
        layout = steps[-1].after
    kept = [axis for axis in right if axis in left]
    gone = [axis for axis in left if axis not in right]
    order = [left.index(axis) for axis in (*kept, *gone)]
    if order != sorted(order):
        layout = layout.permuted(order)
        steps.append(Step(f".permute({_listed(order)})", layout))
    if gone:
        steps.extend(_reduced(layout, operation, len(gone), each))
        layout, element_bytes = steps[-1].after, written
    new = [place for place, axis in enumerate(right) if axis not in left]
    if new:
        steps.append(_with_new_axes(layout, new, [known[axis] for axis in right]))
        layout = steps[-1].after
    if any(len(group) != 1 for group in pattern.right):
        wanted = [prod(known[axis] for axis in group) for group in pattern.right]
        steps.append(reshaped(layout, wanted, element_bytes, [axis.partition("#")[0] for axis in right]))
    return steps


def reshaped(layout: Layout, wanted: Sequence[int], element_bytes: int, names: Sequence[str] = ()) -> Step:
    """`Tensor.reshape`: a view where strides allow one, else a copy in row-major order."""
    after = layout.viewed(wanted)
    if after is not None:
        return Step(f".view({_listed(wanted) or '()'})", after)
    code = f".reshape({_listed(wanted) or '()'})"
    reason = why_no_view(layout, wanted, names)
    return Step(code, Layout.contiguous(wanted), copied(layout, element_bytes), reason)


def _reduced(layout: Layout, operation: str, count: int, each: tuple[int, int]) -> list[Step]:
    """The last `count` dimensions reduced: in one kernel, or one after the other where torch has no other way."""
    element_bytes, written = each
    method = REDUCTIONS[operation]
    rank = len(layout.shape)
    last = tuple(range(rank - count, rank))
    groups = [(each,) for each in reversed(last)] if operation in _ONE_AT_A_TIME else [last]
    steps = []
    for dims in groups:
        after = Layout.contiguous(layout.shape[: dims[0]])
        pieces = moved(
            reduction_of_rows(method, after.num_elements, layout.num_elements // after.num_elements),
            bytes_read=element_bytes * layout.num_distinct,
            bytes_written=written * after.num_elements,
        )
        dim = dims[0] if len(dims) == 1 else f"({_listed(dims)})"
        steps.append(Step(f".{method}(dim={dim})", after, pieces))
        layout, element_bytes = after, written
    return steps


def _with_new_axes(layout: Layout, new: Sequence[int], sizes: Sequence[int]) -> Step:
    for place in new:
        layout = layout.unsqueezed(place)
    code = "".join(f".unsqueeze({place})" for place in new)
    wanted = [sizes[place] if place in new else size for place, size in enumerate(layout.shape)]
    told = [sizes[place] if place in new else -1 for place in range(len(layout.shape))]
    return Step(f"{code}.expand({_listed(told)})", layout.expanded(wanted))


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(str(number) for number in numbers)
