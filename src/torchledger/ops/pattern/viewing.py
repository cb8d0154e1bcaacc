"""Why a shape cannot be had as a view, and what could."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from torchledger.formats.strides import resolved_shape, run_bounds
from torchledger.ops.pattern.layout import Layout
from torchledger.ops.piece import Piece
from torchledger.ops.pointwise import copy


@dataclass(frozen=True, slots=True)
class Viewed:
    """What `Tensor.view` makes of a tensor.

    Attributes:
        before: the tensor.
        wanted: the shape that is asked for, its -1 replaced.
        after: the view, or nothing where only a copy has that shape.
        reason: why there is none.
        flattest: the fewest dimensions that a view of this tensor can have.
        element_bytes: bytes of an element.
    """

    before: Layout
    wanted: tuple[int, ...]
    after: Layout | None
    reason: str
    flattest: Layout
    element_bytes: int

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What `Tensor.reshape` does for this shape: nothing where it is a view."""
        return () if self.after is not None else copied(self.before, self.element_bytes)


def view(
    shape: Sequence[int], new_shape: Sequence[int], *, stride: Sequence[int] | None = None, element_bytes: int = 4
) -> Viewed:
    """Whether a tensor has another shape without a copy (`computeStride` in PyTorch's TensorUtils.cpp).

    Args:
        shape: sizes of the tensor.
        new_shape: what is asked for; one size may be -1.
        stride: its strides; contiguous where nothing is given.
        element_bytes: bytes of an element.

    >>> view((2, 3, 4), (6, -1)).after
    Layout(shape=(6, 4), stride=(4, 1))
    >>> view((2, 3), (6,), stride=(1, 2)).reason
    'size 6 of (6,) joins dimensions 0 and 1, which do not step as one: 0 has stride 1, 6 would go on from 1'

    Raises:
        StrideError: strides of another number of dimensions, or a shape of another number of elements.
    """
    before = Layout.contiguous(shape) if stride is None else Layout(tuple(shape), tuple(stride))
    wanted = resolved_shape(before.num_elements, new_shape)
    after = before.viewed(wanted)
    return Viewed(
        before,
        wanted,
        after,
        "" if after is not None else why_no_view(before, wanted),
        flattest(before),
        element_bytes,
    )


def flattest(layout: Layout) -> Layout:
    """The view with the fewest dimensions: those that step as one are one.

    >>> flattest(Layout.contiguous((2, 3, 4)).permuted((1, 0, 2)))
    Layout(shape=(3, 2, 4), stride=(4, 12, 1))
    """
    bounds = run_bounds(layout.shape, layout.stride)
    return Layout(
        tuple(prod(layout.shape[first:end]) for first, end in bounds),
        tuple(layout.stride[end - 1] for _, end in bounds),
    )


def why_no_view(layout: Layout, wanted: Sequence[int], names: Sequence[str] = ()) -> str:
    """Which two dimensions a new one would join although they do not step as one.

    Args:
        layout: the tensor.
        wanted: a shape that it cannot be viewed in.
        names: of its dimensions, outermost first; their numbers where there are none.
    """
    place = len(wanted) - 1
    for first, end in reversed(run_bounds(layout.shape, layout.stride)):
        count, covered = prod(layout.shape[first:end]), 1
        while place >= 0 and covered < count:
            covered *= wanted[place]
            place -= 1
        if covered != count:
            outer = first - 1
            one, two = (names[outer], names[first]) if names else (str(outer), str(first))
            return (
                f"size {wanted[place + 1]:,} of {tuple(wanted)} joins {'' if names else 'dimensions '}{one} and {two},"
                f" which do not step as one: {one} has stride {layout.stride[outer]:,},"
                f" {layout.stride[end - 1] * count:,} would go on from {two}"
            )
    raise AssertionError  # it can be viewed


def copied(layout: Layout, element_bytes: int) -> tuple[Piece, ...]:
    """A copy in row-major order: each element of the storage read once, each of the result written once."""
    (piece,) = copy(layout.num_elements, element_bytes=element_bytes)
    return (replace(piece, work=replace(piece.work, bytes_read=element_bytes * layout.num_distinct)),)
