"""`Tensor`: sizes, layout and a block, without numbers; views share a block as torch's do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torchledger.formula.layout import contiguous
from torchledger.formula.lifetimes.memory import Block, Memory

if TYPE_CHECKING:
    from torchledger.formula.lifetimes.autograd import Node, Parameter

#: Bytes of an element.
SIZES = {"fp64": 8, "int64": 8, "fp32": 4, "int32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "uint8": 1, "bool": 1}


class Tensor:
    """A tensor by its sizes.

    Attributes:
        shape, strides: in elements.
        number_format: of its elements.
        block: where it lies.
        is_view: whether it is a view of another tensor, which autograd keeps with it.
        node: the operation that made it, in whose gradient it is result number `slot`; nothing without a gradient.
        leaf: the parameter that it is; nothing where it is none.
        wants: whether what is made of it has a gradient though its own goes nowhere, as in a checkpoint's second run.
    """

    __slots__ = ("block", "is_view", "leaf", "node", "number_format", "shape", "slot", "strides", "wants")

    def __init__(
        self, block: Block, shape: Sequence[int], strides: Sequence[int], number_format: str, *, is_view: bool = False
    ) -> None:
        self.block, self.shape, self.strides, self.number_format = block, tuple(shape), tuple(strides), number_format
        self.is_view = is_view
        self.node: Node | None = None
        self.slot = 0
        self.leaf: Parameter | None = None
        self.wants = False

    @property
    def memory(self) -> Memory:
        """What it is counted in."""
        return self.block.memory

    @property
    def needs_gradient(self) -> bool:
        """Whether a gradient flows back to it."""
        return self.node is not None or self.leaf is not None or self.wants

    @property
    def num_elements(self) -> int:
        """Product of its sizes."""
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Whether its elements fill a stretch of memory without gaps, in whatever order of dimensions."""
        step = 1
        for stride, size in sorted((s, n) for s, n in zip(self.strides, self.shape, strict=True) if n != 1):
            if stride != step:
                return False
            step *= size
        return True

    @property
    def is_contiguous(self) -> bool:
        """Whether its elements lie in the order of its dimensions."""
        step = 1
        for stride, size in zip(reversed(self.strides), reversed(self.shape), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def detached(self) -> Tensor:
        """The same without a gradient."""
        return Tensor(self.block, self.shape, self.strides, self.number_format, is_view=self.is_view)

    def viewed(self, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """The same block seen otherwise."""
        return Tensor(self.block, shape, strides, self.number_format, is_view=True)


def made(
    memory: Memory,
    shape: Sequence[int],
    number_format: str,
    strides: Sequence[int] | None = None,
    part: str = "temporaries",
) -> Tensor:
    """A new tensor, contiguous where no strides are given."""
    block = Block(memory, SIZES[number_format] * math.prod(shape), part)
    return Tensor(block, shape, contiguous(shape) if strides is None else strides, number_format)


def view_strides(shape: Sequence[int], strides: Sequence[int], into: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements in other sizes; nothing where that takes a copy (`at::detail::computeStride`).

    >>> view_strides((2, 3, 4), (12, 4, 1), (6, 4)), view_strides((2, 3), (1, 2), (6,))
    ((4, 1), None)
    """
    if math.prod(shape) == 0:
        return contiguous(into)
    found = [0] * len(into)
    at = len(into) - 1
    chunk, base, step = 1, strides[-1] if strides else 1, 1
    for dim in range(len(shape) - 1, -1, -1):
        chunk *= shape[dim]
        if dim == 0 or (shape[dim - 1] != 1 and strides[dim - 1] != chunk * base):
            while at >= 0 and (step < chunk or into[at] == 1):
                found[at] = step * base
                step *= into[at]
                at -= 1
            if step != chunk:
                return None
            if dim > 0:
                base, chunk, step = strides[dim - 1], 1, 1
    if not shape:
        return contiguous(into)
    return None if at >= 0 else tuple(found)


def like_strides(x: Tensor) -> tuple[int, ...]:
    """Strides of a new tensor that is as `x` is: its own where it is dense, else dense in their order."""
    return x.strides if x.is_dense else strides_of(x.shape, x)


def strides_of(shape: Sequence[int], *operands: Tensor) -> tuple[int, ...]:
    """Strides of what an operation element by element makes: dense, in the order of its operands' dimensions.

    Of those the first decides that does not repeat one of the two dimensions (`TensorIteratorBase::reorder_dimensions`
    in aten/src/ATen/TensorIterator.cpp).
    """
    dims = len(shape)
    if all(each.is_contiguous and each.shape == tuple(shape) for each in operands):
        return contiguous(shape)
    aligned = [_aligned(each, shape) for each in operands]
    order = list(reversed(range(dims)))
    for i in range(1, dims):
        at = i
        for before in range(i - 1, -1, -1):
            found = _compared(order[before], order[at], aligned, shape)
            if found > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif found < 0:
                break
    strides, step = [0] * dims, 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


def _aligned(x: Tensor, shape: Sequence[int]) -> list[int]:
    """Strides of an operand in the sizes of the result, 0 where it is repeated."""
    more = len(shape) - len(x.shape)
    own = [0 if n == 1 and m != 1 else s for n, m, s in zip(x.shape, shape[more:], x.strides, strict=True)]
    return [0] * more + own


def _compared(first: int, second: int, aligned: Sequence[Sequence[int]], shape: Sequence[int]) -> int:
    for strides in aligned:
        a, b = strides[first], strides[second]
        if a == 0 or b == 0:
            continue
        if a != b:
            return -1 if a < b else 1
        if shape[first] > shape[second]:
            return 1
    return 0
