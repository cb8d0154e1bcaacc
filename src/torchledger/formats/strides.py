"""Strides: where the elements of a tensor lie in its storage, as plain integer arithmetic.

Element (i1, ..., in) of a tensor of a given offset and stride is element ``offset + Σ ik·stride_k`` of its storage.
All else follows: whether elements lie in order without gaps, whether two of them are one, and whether another shape can
be had of the same storage (a view) or only by moving elements (a copy).

Strides and offsets count elements, as PyTorch's do, and are never negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import gcd, prod
from typing import Any

from torchledger.formats.format import FormatError


class StrideError(FormatError):
    """Sizes that are none, a stride that fits no shape, or a shape of another number of elements."""


def contiguous_stride(shape: Sequence[int]) -> tuple[int, ...]:
    """The stride of elements that lie in row-major order without gaps, as `torch.empty(shape)` has it.

    A size of 0 counts as 1, as in PyTorch.

    >>> contiguous_stride((2, 3, 4))
    (12, 4, 1)

    Raises:
        StrideError: a size is negative or no whole number.
    """
    sizes = _sizes(shape)
    return tuple(prod(max(size, 1) for size in sizes[dimension + 1 :]) for dimension in range(len(sizes)))


def is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements lie in row-major order without gaps; strides of sizes of 1 do not matter.

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if 0 in sizes:
        return True
    return all(
        size == 1 or step == expected
        for size, step, expected in zip(sizes, steps, contiguous_stride(sizes), strict=True)
    )


def is_dense(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether elements fill a stretch of the storage without gaps or overlaps, in any order of dimensions.

    A transpose is dense, a slice of columns is not. `clone` keeps the strides of what is dense and makes the rest
    contiguous in the order of its strides (`torch.preserve_format`).

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    expected = 1
    for step, size in sorted((step, size) for step, size in zip(steps, sizes, strict=True) if size > 1):
        if step != expected:
            return 0 in sizes
        expected *= size
    return True


def address(index: Sequence[int], stride: Sequence[int], offset: int = 0) -> int:
    """Which element of the storage an index is: offset + Σ index·stride.

    >>> address((1, 2), stride=(1, 4), offset=3)
    12

    Raises:
        StrideError: an index of another number of dimensions.
    """
    if len(index) != len(stride):
        raise StrideError(f"an index of {len(index)} dimensions into a stride of {len(stride)}")
    return offset + sum(i * step for i, step in zip(index, stride, strict=True))


def extent(shape: Sequence[int], stride: Sequence[int]) -> int:
    """Elements of the storage from the first that a tensor has to its last, both included; 0 of an empty one.

    >>> extent((3, 2), (4, 1))  # the first two columns of a (3, 4)
    10

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if 0 in sizes:
        return 0
    return 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))


def num_distinct(shape: Sequence[int], stride: Sequence[int]) -> int | None:
    """Elements of the storage that a tensor reaches: fewer than its own where it overlaps itself.

    Exact where dimensions are expanded (stride 0), or do not reach into one another, or the stretch has at most 2^24
    elements; `None` elsewhere.

    >>> num_distinct((2, 3), (0, 1))  # one row, seen twice
    3
    >>> num_distinct((3, 2), (1, 1))  # windows of two over four elements
    4

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if 0 in sizes:
        return 0
    moving = [(step, size) for step, size in zip(steps, sizes, strict=True) if size > 1 and step > 0]
    if _are_nested(moving):
        return prod(size for _, size in moving)
    unit = gcd(*(step for step, _ in moving))
    if sum((size - 1) * step // unit for step, size in moving) >= _COUNTABLE:
        return None
    reached = 1  # bit n: element n·unit is reached
    for step, size in moving:
        reached = _shifted(reached, step // unit, size)
    return reached.bit_count()


def overlaps(shape: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether two indices are one element of the storage, as after `expand` or with sliding windows.

    Exact: that is so if and only if some d, not all 0 and each within ±(size_k - 1), has Σ dk·stride_k = 0, which is
    searched for from the largest stride down.

    >>> overlaps((2, 3), (0, 1)), overlaps((3, 2), (1, 1)), overlaps((3, 2), (2, 3))
    (True, True, False)

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if 0 in sizes:
        return False
    moving = sorted(((step, size) for step, size in zip(steps, sizes, strict=True) if size > 1), reverse=True)
    if any(step == 0 for step, _ in moving):
        return True
    return not _are_nested(moving) and _meets(moving, 0, 0, moved=False)


def view_stride(shape: Sequence[int], stride: Sequence[int], new_shape: Sequence[int]) -> tuple[int, ...] | None:
    """The stride with which the same storage has another shape; `None` where only a copy has it.

    The rule of `Tensor.view` (`computeStride` in PyTorch's aten/src/ATen/TensorUtils.cpp): dimensions that step as one
    are runs (`runs`); a new dimension may split a run or be a piece of one, and may not reach from one into the next.

    Args:
        shape: sizes of the tensor.
        stride: its strides.
        new_shape: what is asked for, of as many elements; no -1 (`resolved_shape` replaces it).

    >>> view_stride((2, 3, 4), (12, 4, 1), (6, 4))
    (4, 1)
    >>> view_stride((2, 3), (1, 2), (6,)) is None  # a transpose cannot be flattened
    True

    Raises:
        StrideError: shape and stride do not fit one another, or the new shape has another number of elements.
    """
    sizes, steps = _pair(shape, stride)
    wanted = _sizes(new_shape)
    if prod(sizes) != prod(wanted):
        raise StrideError(_other_count(sizes, wanted))
    if 0 in sizes:
        return steps if sizes == wanted else contiguous_stride(wanted)
    found = [0] * len(wanted)
    dimension = len(wanted) - 1
    for count, step in reversed(runs(sizes, steps) or ((1, 1),)):
        covered = 1
        while dimension >= 0 and (covered < count or wanted[dimension] == 1):
            found[dimension] = covered * step
            covered *= wanted[dimension]
            dimension -= 1
        if covered != count:
            return None
    return tuple(found)


def runs(shape: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Neighbouring dimensions that step as one, outermost first: (elements, stride of the innermost) of each run.

    Contiguous elements are one run, whatever their shape. A view can cut runs, and cannot join them.

    >>> runs((2, 3, 4), (12, 4, 1)), runs((2, 4, 3), (12, 1, 4))
    (((24, 1),), ((2, 12), (4, 1), (3, 4)))

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    return tuple((prod(shape[first:end]), stride[end - 1]) for first, end in run_bounds(shape, stride))


def run_bounds(shape: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The dimensions of each run of `runs`, as first and one past the last; a size of 1 goes with what is inside it.

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if not sizes:
        return ()
    cuts = [len(sizes)]
    count = 1
    for dimension in range(len(sizes) - 1, 0, -1):
        count *= sizes[dimension]
        outer = dimension - 1
        if sizes[outer] != 1 and steps[outer] != count * steps[cuts[-1] - 1]:
            cuts.append(dimension)
            count = 1
    cuts.append(0)
    return tuple(pairwise(reversed(cuts)))


def resolved_shape(num_elements: int, new_shape: Sequence[int]) -> tuple[int, ...]:
    """A shape with its -1 replaced by what is left over.

    >>> resolved_shape(24, (6, -1))
    (6, 4)

    Raises:
        StrideError: more than one -1, one that cannot be known or is no whole number, or another number of elements.
    """
    open_sizes = [dimension for dimension, size in enumerate(new_shape) if size == -1]
    if not open_sizes:
        wanted = _sizes(new_shape)
        if prod(wanted) != num_elements:
            raise StrideError(f"{wanted} has {prod(wanted):,} elements, the tensor {num_elements:,}")
        return wanted
    if len(open_sizes) > 1:
        raise StrideError(f"only one size of {tuple(new_shape)} can be -1")
    known = prod(_sizes([size for size in new_shape if size != -1]))
    if known == 0:
        raise StrideError(f"the -1 of {tuple(new_shape)} can be anything: another size is 0")
    if num_elements % known:
        raise StrideError(
            f"{num_elements:,} elements cannot be {tuple(new_shape)}: {num_elements:,} / {known:,} is no whole number"
        )
    return tuple(num_elements // known if size == -1 else size for size in new_shape)


def clone_stride(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """The stride that `clone` gives its result: the operand's order, without gaps (`torch.preserve_format`).

    Dense operands keep theirs. Others are laid out by their strides, of equal ones the smaller size innermost
    (`infer_dense_strides` in PyTorch's aten/src/ATen/ExpandUtils.cpp). A pointwise operation lays its result out alike,
    save for the strides of sizes of 1, which no element sees.

    >>> clone_stride((2, 3), (1, 4))  # a transposed (3, 2) that was a slice of a (3, 4)
    (1, 2)

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    sizes, steps = _pair(shape, stride)
    if is_dense(sizes, steps):
        return steps
    found = [0] * len(sizes)
    step = 1
    for dimension in _innermost_first(sizes, steps):
        found[dimension] = step
        step *= max(1, sizes[dimension])
    return tuple(found)


def carried(
    shape: Sequence[int], stride: Sequence[int], seen_shape: Sequence[int], seen_stride: Sequence[int], offset: int = 0
) -> tuple[tuple[int, ...], int] | None:
    """A view of a contiguous copy as the view of the original that has the same elements; `None` where there is none.

    Args:
        shape: sizes of the original and of its contiguous copy.
        stride: strides of the original.
        seen_shape: sizes of the view of the copy.
        seen_stride: its strides in the copy.
        offset: of its first element in the copy.

    Returns:
        Strides and offset of the view of the original, the offset from the original's first element.

    >>> carried((2, 3), (1, 2), (3, 2), (1, 3))  # transposed back
    ((2, 1), 0)
    >>> carried((2, 3), (1, 2), (6,), (1,)) is None  # flattened
    True

    Raises:
        StrideError: shape and stride do not fit one another.
    """
    joined = runs(shape, stride)
    sizes, steps = _pair(seen_shape, seen_stride)
    if 0 in sizes or not joined:
        return steps, offset
    copied = contiguous_stride([count for count, _ in joined])
    reached = []  # index of the first element in each run, and then of the last
    start, rest = 0, offset
    for (count, step), own in zip(joined, copied, strict=True):
        index, rest = divmod(rest, own)
        if index >= count:
            return None
        reached.append(index)
        start += index * step
    found = []
    for size, step in zip(sizes, steps, strict=True):
        run = next((n for n, own in enumerate(copied) if own <= step), len(copied) - 1)
        if size == 1 or step == 0:
            found.append(0 if step == 0 else step // copied[run] * joined[run][1])
            continue
        times, left = divmod(step, copied[run])
        reached[run] += times * (size - 1)
        if left or reached[run] >= joined[run][0]:
            return None
        found.append(times * joined[run][1])
    return tuple(found), start


# How long a stretch may be for its elements to be counted one by one (a bit each, 2 MiB).
_COUNTABLE = 2**24


def _are_nested(moving: Iterable[tuple[int, int]]) -> bool:
    """Whether each dimension steps past all that the smaller ones reach, so that no two indices meet."""
    reach = 0
    for step, size in sorted(moving):
        if step <= reach:
            return False
        reach += (size - 1) * step
    return True


def _innermost_first(sizes: Sequence[int], steps: Sequence[int]) -> list[int]:
    """Dimensions by stride, smallest first; 0 compares with nothing, so it is sorted by insertion as in PyTorch."""
    order = list(reversed(range(len(sizes))))
    for start in range(1, len(order)):
        moving = start
        for place in reversed(range(start)):
            inner, outer = order[place], order[moving]
            if steps[inner] == 0 or steps[outer] == 0:
                continue
            if steps[inner] < steps[outer]:
                break
            if steps[inner] > steps[outer] or sizes[inner] > sizes[outer]:
                order[place], order[moving] = outer, inner
                moving = place
    return order


def _meets(moving: Sequence[tuple[int, int]], dimension: int, sum_before: int, *, moved: bool) -> bool:
    """Whether steps in the dimensions from this one on, each less than its size, bring a sum to 0."""
    step, size = moving[dimension]
    if dimension == len(moving) - 1:
        times, rest = divmod(-sum_before, step)
        return rest == 0 and abs(times) < size and (moved or times != 0)
    reach = sum((size - 1) * step for step, size in moving[dimension + 1 :])
    lowest = max(-(size - 1), -((reach + sum_before) // step)) if moved else 0  # the first move may be taken upwards
    highest = min(size - 1, (reach - sum_before) // step)
    return any(
        _meets(moving, dimension + 1, sum_before + times * step, moved=moved or times != 0)
        for times in range(lowest, highest + 1)
    )


def _shifted(reached: int, step: int, size: int) -> int:
    """Bits of `reached` at every multiple of a step below a size, by doubling."""
    done = 1
    while done < size:
        more = min(done, size - done)
        reached |= reached << more * step
        done += more
    return reached


def _sizes(shape: Sequence[int]) -> tuple[int, ...]:
    sizes: tuple[Any, ...] = tuple(shape)
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
        raise StrideError(f"a shape has whole sizes of at least 0, got {sizes}")
    return sizes


def _pair(shape: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes = _sizes(shape)
    steps: tuple[Any, ...] = tuple(stride)
    if len(sizes) != len(steps):
        raise StrideError(f"a shape of {len(sizes)} dimensions {sizes} has no stride of {len(steps)} {steps}")
    if any(not isinstance(step, int) or isinstance(step, bool) or step < 0 for step in steps):
        raise StrideError(f"strides are whole numbers of at least 0, got {steps}")
    return sizes, steps


def _other_count(sizes: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    return f"{wanted} has {prod(wanted):,} elements, {sizes} has {prod(sizes):,} elements"
