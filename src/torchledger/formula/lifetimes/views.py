"""Views of tensors, with gradients that are views where they can be and copies where they cannot."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.formula.lifetimes.autograd import Formula, Gradients, begun, ended
from torchledger.formula.lifetimes.tensors import Tensor, like_strides, made, view_strides


def first(gradients: Gradients) -> Tensor:
    """The first gradient that is there."""
    return next(each for each in gradients if each is not None)


def _viewed(x: Tensor, shape: Sequence[int], strides: Sequence[int], formula: Formula) -> Tensor:
    node = begun((x,))
    y = x.viewed(shape, strides)
    ended(node, formula, y)
    return y


def clone(x: Tensor, *, contiguous: bool = True) -> Tensor:
    """A copy; the gradient goes on as it is."""
    node = begun((x,))
    y = made(x.memory, x.shape, x.number_format, None if contiguous else like_strides(x))
    ended(node, lambda _, g, __: [g[0]], y)
    return y


def cast(x: Tensor, number_format: str) -> Tensor:
    """A copy in another format, whose gradient is cast back; `x` itself where it is in that format."""
    if x.number_format == number_format:
        return x
    node, before = begun((x,)), x.number_format
    y = made(x.memory, x.shape, number_format, like_strides(x))
    ended(node, lambda _, g, __: [cast(first(g), before)], y)
    return y


def reshape(x: Tensor, *shape: int) -> Tensor:
    """The same elements in other sizes: a view where that can be, a copy otherwise."""
    if tuple(shape) == x.shape:
        return x
    strides = view_strides(x.shape, x.strides, shape)
    if strides is None:
        return reshape(clone(x), *shape)
    before = x.shape
    return _viewed(x, shape, strides, lambda _, g, __: [reshape(first(g), *before)])


def permute(x: Tensor, *order: int) -> Tensor:
    """Dimensions in another order."""
    if order == tuple(range(len(order))):
        return x
    back = tuple(order.index(dim) for dim in range(len(order)))
    shape, strides = [x.shape[dim] for dim in order], [x.strides[dim] for dim in order]
    return _viewed(x, shape, strides, lambda _, g, __: [permute(first(g), *back)])


def expand(x: Tensor, *shape: int) -> Tensor:
    """Dimensions of size 1 repeated without a copy; the gradient is summed over them."""
    strides = [0 if n != m else s for n, m, s in zip(shape, x.shape, x.strides, strict=True)]
    return _viewed(x, shape, strides, lambda _, g, __: [first(g)])


def unsqueezed(x: Tensor, dim: int) -> Tensor:
    """One more dimension, of size 1."""
    shape, strides = list(x.shape), list(x.strides)
    shape.insert(dim, 1)
    strides.insert(dim, 1)
    before = x.shape
    return _viewed(x, shape, strides, lambda _, g, __: [reshape(first(g), *before)])


def sliced(x: Tensor, size: int) -> Tensor:
    """Some of the last dimension; the gradient is as large as the whole, zeros elsewhere."""
    before = x.shape
    if size == before[-1]:
        return _viewed(x, x.shape, x.strides, lambda _, g, __: [first(g)])
    return _viewed(
        x, (*before[:-1], size), x.strides, lambda _, g, __: [made(first(g).memory, before, first(g).number_format)]
    )


def split(x: Tensor, *sizes: int, dim: int = -1) -> list[Tensor]:
    """A dimension in parts; the gradient joins theirs, zeros where there is none."""
    node = begun((x,))
    dim %= len(x.shape)
    shapes = [(*x.shape[:dim], size, *x.shape[dim + 1 :]) for size in sizes]
    parts = [x.viewed(shape, x.strides) for shape in shapes]
    before = x.shape

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        like = first(g)
        zeros = [made(like.memory, s, like.number_format) for s, each in zip(shapes, g, strict=True) if each is None]
        joined = made(like.memory, before, like.number_format)
        zeros.clear()
        return [joined]

    ended(node, back, *parts)
    return parts


def joined(*parts: Tensor, dim: int = -1) -> Tensor:
    """Tensors side by side, a copy in the widest of their formats; the gradients are slices."""
    memory = parts[0].memory
    dim %= len(parts[0].shape)
    formats = {each.number_format for each in parts}
    number_format = "fp32" if "fp32" in formats else parts[0].number_format
    node = begun(parts)
    shapes = [each.shape for each in parts]
    shape = list(shapes[0])
    shape[dim] = sum(each[dim] for each in shapes)
    y = made(memory, shape, number_format)
    ended(node, lambda _, g, __: [first(g).viewed(each, first(g).strides) for each in shapes], y)
    return y
