"""Operations of torch: what each makes, keeps, and makes in its gradient (derivatives.yaml, on the CPU).

Of several gradients that of the last operand is made first mostly, as the generated code does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torchledger.formula.lifetimes.autograd import Gradients, Parameter, begun, ended
from torchledger.formula.lifetimes.tensors import Tensor, like_strides, made, strides_of
from torchledger.formula.lifetimes.views import cast, first, joined, permute, reshape


def number(x: Tensor) -> Tensor:
    """A Python number that an operation keeps, which autograd wraps in a tensor of 8 bytes; checkpoints see none."""
    return made(x.memory, (), "fp64", part="activations")


def like(x: Tensor, *others: Tensor | None, number_format: str = "") -> Tensor:
    """A new tensor of the sizes of x and of the layout that an operation on all of these gives."""
    operands = [x, *(each for each in others if each is not None)]
    strides = strides_of(x.shape, *operands) if others else like_strides(x)
    return made(x.memory, x.shape, number_format or x.number_format, strides)


def _both(a: Tensor, b: Tensor) -> Tensor:
    """A new tensor of the sizes that both are repeated to, in the wider of their formats."""
    dims = max(len(a.shape), len(b.shape))
    first_shape, second_shape = ((1,) * (dims - len(each.shape)) + each.shape for each in (a, b))
    shape = tuple(max(n, m) for n, m in zip(first_shape, second_shape, strict=True))
    number_format = "fp32" if "fp32" in {a.number_format, b.number_format} else a.number_format
    return made(a.memory, shape, number_format, strides_of(shape, a, b))


def add(a: Tensor, b: Tensor) -> Tensor:
    """Sum a + b; a gradient goes to both as it is."""
    node = begun((a, b))
    y = _both(a, b)
    ended(node, lambda _, g, __: [g[0], g[0]], y)
    return y


def mul(a: Tensor, b: Tensor) -> Tensor:
    """Product a · b. Each is kept for the other's gradient."""
    node = begun((a, b), a if b.needs_gradient else None, b if a.needs_gradient else None)
    y = _both(a, b)
    needs = a.needs_gradient, b.needs_gradient

    def back(kept: list[Tensor | None], g: Gradients, _: list[Tensor]) -> Gradients:
        of_b = _both(first(g), kept[0]) if needs[1] and kept[0] is not None else None
        return [_both(first(g), kept[1]) if needs[0] and kept[1] is not None else None, of_b]

    ended(node, back, y)
    return y


def shifted(x: Tensor) -> Tensor:
    """The sum of x and a Python number."""
    node = begun((x,))
    y = like(x)
    ended(node, lambda _, g, __: [g[0]], y)
    return y


def divided(a: Tensor, b: Tensor) -> Tensor:
    """The quotient a / b, b maybe one column that is repeated. The gradient of b is -g·((a / b) / b)."""
    node = begun((a, b), a if b.needs_gradient else None, b)
    y = _both(a, b)

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        meanwhile = [like(first(g)) for _ in range(3)]
        of_b = like(first(g))
        meanwhile.clear()
        return [like(first(g)), of_b]

    ended(node, back, y)
    return y


def scale(x: Tensor, *, keeps_number: bool = True) -> Tensor:
    """The product of x and a Python number, or the quotient."""
    node = begun((x,))
    y = like(x)
    if node is not None and keeps_number:
        node.kept.append(number(x))
    ended(node, lambda _, g, __: [like(first(g))], y)
    return y


def plain(x: Tensor, *, keeps: str = "") -> Tensor:
    """An operation element by element with one gradient: of the `operand` or `result` that it keeps, or of neither."""
    node = begun((x,), *((x,) if keeps == "operand" else ()))
    y = like(x)
    ended(node, lambda kept, g, _: [like(first(g), *kept)], y, keeps=(y,) if keeps == "result" else ())
    return y


def clamped(x: Tensor) -> Tensor:
    """A tensor held between two numbers. Its gradient asks where it was."""
    node = begun((x,), x)
    y = like(x)

    def back(kept: list[Tensor | None], g: Gradients, late: list[Tensor]) -> Gradients:
        assert kept[0] is not None
        late += [
            made(kept[0].memory, (), kept[0].number_format),
            *(like(kept[0], number_format="bool") for _ in range(2)),
        ]
        return [like(kept[0], first(g))]

    ended(node, back, y)
    return y


def square(x: Tensor) -> Tensor:
    """A power of two. Its gradient is g·(2·x)."""
    node = begun((x,), x)
    y = like(x)

    def back(kept: list[Tensor | None], g: Gradients, late: list[Tensor]) -> Gradients:
        assert kept[0] is not None
        late += [like(kept[0]), like(kept[0])]
        return [like(first(g))]

    ended(node, back, y)
    return y


def rsqrt(x: Tensor) -> Tensor:
    """1/√x. Its gradient is -½·g·y³."""
    node = begun((x,))
    y = like(x)

    def back(kept: list[Tensor | None], g: Gradients, late: list[Tensor]) -> Gradients:
        assert kept[0] is not None
        late += [like(kept[0]), like(kept[0])]
        return [like(first(g))]

    ended(node, back, y, keeps=(y,))
    return y


def mean(x: Tensor, *, of_rows: bool = False) -> Tensor:
    """Over the last dimension, which stays with size 1; or of rows, over all that are before it."""
    node, before = begun((x,)), x.shape
    y = made(x.memory, before[-1:] if of_rows else (*before[:-1], 1), x.number_format)
    ended(node, lambda _, g, __: [made(first(g).memory, before, first(g).number_format)], y)
    return y


def total(x: Tensor) -> Tensor:
    """The sum of all elements; the gradient is repeated."""
    node, before = begun((x,)), x.shape
    y = made(x.memory, (), x.number_format)
    ended(node, lambda _, g, __: [first(g).viewed(before, (0,) * len(before))], y)
    return y


def stacked(*numbers: Tensor) -> Tensor:
    """Numbers as a vector; the gradients are views of its."""
    node, count = begun(numbers), len(numbers)
    y = made(numbers[0].memory, (count,), numbers[0].number_format)
    ended(node, lambda _, g, __: [first(g).viewed((), ()) for _ in range(count)], y)
    return y


def softmax(x: Tensor) -> Tensor:
    """Over the last dimension. Keeps its result."""
    node = begun((x,))
    y = made(x.memory, x.shape, x.number_format)
    ended(node, lambda _, g, __: [made(first(g).memory, first(g).shape, first(g).number_format)], y, keeps=(y,))
    return y


def dropped(x: Tensor) -> Tensor:
    """Dropout on the CPU: a mask in the format of x, scaled in place, times x."""
    mask = like(x)
    return mul(x, mask)


def matmul(a: Tensor, b: Tensor, *, transposed: bool = False) -> Tensor:
    """Product of matrices a [m, k] @ b [k, n], b maybe the transposed of a contiguous matrix."""
    node = begun((a, b), a if b.needs_gradient else None, b if a.needs_gradient else None)
    y = made(a.memory, (a.shape[0], b.shape[1]), a.number_format)
    needs = a.needs_gradient, b.needs_gradient
    of = a.shape, b.shape

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        of_b = _product_of(first(g), of[1], transposed=transposed) if needs[1] else None
        return [made(first(g).memory, of[0], first(g).number_format) if needs[0] else None, of_b]

    ended(node, back, y)
    return y


def _product_of(g: Tensor, shape: tuple[int, ...], *, transposed: bool) -> Tensor:
    """A product in the layout of what it is a gradient of."""
    if not transposed:
        return made(g.memory, shape, g.number_format)
    return permute(made(g.memory, shape[::-1], g.number_format), 1, 0)


def add_matmul(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Product of matrices a [m, k] @ b [k, n] + bias [n]."""
    node = begun((bias, a, b), a if b.needs_gradient else None, b if a.needs_gradient else None)
    y = made(a.memory, (a.shape[0], b.shape[1]), a.number_format)
    needs = bias.needs_gradient, a.needs_gradient, b.needs_gradient
    of = a.shape, b.shape

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        of_a = made(first(g).memory, of[0], first(g).number_format) if needs[1] else None
        of_b = _product_of(first(g), of[1], transposed=True) if needs[2] else None
        return [first(g) if needs[0] else None, of_a, of_b]

    ended(node, back, y)
    return y


def batched(a: Tensor, b: Tensor) -> Tensor:
    """Products a [n, i, k] @ b [n, k, j]."""
    node = begun((a, b), a if b.needs_gradient else None, b if a.needs_gradient else None)
    y = made(a.memory, (a.shape[0], a.shape[1], b.shape[2]), a.number_format)
    needs = a.needs_gradient, b.needs_gradient
    of = a.shape, b.shape

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        of_b = made(first(g).memory, of[1], first(g).number_format) if needs[1] else None
        return [made(first(g).memory, of[0], first(g).number_format) if needs[0] else None, of_b]

    ended(node, back, y)
    return y


def autocast(x: Tensor) -> Tensor:
    """What a product reads: under autocast a copy in BF16, of a trained parameter one for all."""
    casts = x.memory.casts
    if casts is None or x.number_format != "fp32":
        return x
    if x.leaf is None:
        return cast(x, "bf16")
    if id(x.leaf) not in casts:
        casts[id(x.leaf)] = cast(x, "bf16")
    return casts[id(x.leaf)]


def linear(x: Tensor, weight: Parameter, bias: Parameter | None = None) -> Tensor:
    """Map y = x Wᵀ + b of the last dimension."""
    b = None if bias is None else autocast(bias.tensor)
    w = autocast(weight.tensor)
    x = autocast(x)
    *rows, inputs = x.shape
    flat_rows = 1
    for size in rows:
        flat_rows *= size
    if b is None:
        turned = permute(w, 1, 0)
        y = matmul(reshape(x, flat_rows, inputs), turned, transposed=True)
    else:
        flat = reshape(x, flat_rows, inputs)
        y = add_matmul(b, flat, permute(w, 1, 0))
    return reshape(y, *rows, weight.tensor.shape[0])


def joint_linear(x: Tensor, weights: Sequence[Parameter], biases: Sequence[Parameter]) -> Tensor:
    """Several such maps as one product of 16-bit copies (`trainer.joint`)."""
    narrow = cast(x, "bf16")
    w = joined(*[cast(each.tensor, "bf16") for each in weights], dim=0)
    b = joined(*[cast(each.tensor, "bf16") for each in biases], dim=0) if biases else None
    *rows, inputs = narrow.shape
    flat = reshape(narrow, math.prod(rows), inputs)
    y = matmul(flat, permute(w, 1, 0), transposed=True) if b is None else add_matmul(b, flat, permute(w, 1, 0))
    return reshape(y, *rows, w.shape[0])


def embedding(table: Parameter, indices: Tensor) -> Tensor:
    """Rows of a table."""
    rows, width = table.tensor.shape
    node = begun((table.tensor,), indices)
    y = made(indices.memory, (*indices.shape, width), table.tensor.number_format)
    ended(node, lambda _, g, __: [made(first(g).memory, (rows, width), first(g).number_format)], y)
    return y


def layer_norm(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """One kernel, which keeps its input, means and deviations."""
    node = begun((x, weight, bias), x, weight, bias)
    y = made(x.memory, x.shape, x.number_format)
    rows = (*x.shape[:-1], 1)
    means, deviations = (made(x.memory, rows, x.number_format) for _ in range(2))
    shapes = [each.shape if each is not None and each.needs_gradient else None for each in (x, weight, bias)]

    def back(_: list[Tensor | None], g: Gradients, __: list[Tensor]) -> Gradients:
        like = first(g)
        return [None if shape is None else made(like.memory, shape, like.number_format) for shape in shapes]

    ended(node, back, y, keeps=(means, deviations))
    return y
