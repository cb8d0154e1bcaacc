"""`Layout`: shape and stride of a tensor, and what becomes of them when it is permuted, expanded or reshaped.

Each function does what PyTorch's of the same name does to strides, those of sizes of 1 included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from torchledger.formats.strides import StrideError, contiguous_stride, is_contiguous, num_distinct, view_stride


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the elements of a tensor lie.

    Attributes:
        shape: sizes.
        stride: elements of the storage from one index to the next, for each dimension.
    """

    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def contiguous(cls, shape: Sequence[int]) -> Layout:
        """Row-major order without gaps.

        >>> Layout.contiguous((2, 3, 4)).stride
        (12, 4, 1)
        """
        return cls(tuple(shape), contiguous_stride(shape))

    def __post_init__(self) -> None:
        if len(self.shape) != len(self.stride):
            has = f"a shape of {len(self.shape)} dimensions {self.shape}"
            raise StrideError(f"{has} has no stride of {len(self.stride)} {self.stride}")

    @property
    def num_elements(self) -> int:
        """Elements as they are counted by index."""
        return prod(self.shape)

    @property
    def num_distinct(self) -> int:
        """Elements of the storage: fewer where a dimension is expanded; all of them where that cannot be counted."""
        counted = num_distinct(self.shape, self.stride)
        return self.num_elements if counted is None else counted

    @property
    def is_contiguous(self) -> bool:
        """Whether `.contiguous()` has nothing to do."""
        return is_contiguous(self.shape, self.stride)

    def permuted(self, order: Sequence[int]) -> Layout:
        """Dimensions in another order.

        >>> Layout.contiguous((2, 3)).permuted((1, 0))
        Layout(shape=(3, 2), stride=(1, 3))
        """
        return Layout(tuple(self.shape[each] for each in order), tuple(self.stride[each] for each in order))

    def unsqueezed(self, dimension: int) -> Layout:
        """A new dimension of size 1, with the stride that `Tensor.unsqueeze` gives it."""
        step = 1 if dimension == len(self.shape) else self.shape[dimension] * self.stride[dimension]
        return Layout(
            (*self.shape[:dimension], 1, *self.shape[dimension:]),
            (*self.stride[:dimension], step, *self.stride[dimension:]),
        )

    def expanded(self, shape: Sequence[int]) -> Layout:
        """Dimensions of size 1 seen as larger ones: the same element again and again, stride 0."""
        stride = tuple(
            step if size == wanted else 0 for size, step, wanted in zip(self.shape, self.stride, shape, strict=True)
        )
        return Layout(tuple(shape), stride)

    def viewed(self, shape: Sequence[int]) -> Layout | None:
        """The same elements in another shape; nothing where only a copy has it.

        Raises:
            StrideError: the shape has another number of elements.
        """
        stride = view_stride(self.shape, self.stride, shape)
        return None if stride is None else Layout(tuple(shape), stride)

    def diagonal(self, first: int, second: int) -> Layout:
        """Two dimensions of one size walked together, at the place of the first."""
        stride = list(self.stride)
        stride[first] += stride[second]
        keep = [dimension for dimension in range(len(self.shape)) if dimension != second]
        return Layout(tuple(self.shape[each] for each in keep), tuple(stride[each] for each in keep))


def product_layout(left: Layout, right: Layout) -> Layout:
    """What an operation on two broadcast tensors returns: dimensions ordered by their strides, smallest innermost.

    The rule of TensorIterator (`reorder_dimensions` in PyTorch's aten/src/ATen/TensorIterator.cpp), with its fast way
    for operands of one shape.

    Args:
        left: of as many dimensions as the right one; a size of 1 is broadcast.
        right: likewise.
    """
    shape = tuple(max(pair) for pair in zip(left.shape, right.shape, strict=True))
    if left.shape == right.shape and left.is_contiguous and right.is_contiguous:
        return Layout.contiguous(shape)
    steps = [
        tuple(0 if size == 1 and wanted != 1 else step for size, step, wanted in zip(*both, shape, strict=True))
        for both in ((left.shape, left.stride), (right.shape, right.stride))
    ]
    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        moving = start
        for place in reversed(range(start)):
            verdict = _compared(order[place], order[moving], steps, shape)
            if verdict > 0:
                order[place], order[moving] = order[moving], order[place]
                moving = place
            elif verdict < 0:
                break
    stride = [0] * len(shape)
    step = 1
    for dimension in order:
        stride[dimension] = step
        step *= shape[dimension]
    return Layout(shape, tuple(stride))


def _compared(inner: int, outer: int, steps: Sequence[Sequence[int]], shape: Sequence[int]) -> int:
    """Above 0 where two dimensions should change places, below where they stand right, 0 where it is open."""
    for step in steps:
        if step[inner] == 0 or step[outer] == 0:
            continue
        if step[inner] != step[outer]:
            return 1 if step[inner] > step[outer] else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0
