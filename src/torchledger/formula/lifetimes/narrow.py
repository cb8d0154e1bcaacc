"""Linear maps in FP8 as the trainer's allocate: casts, products, and what is cast again in the backward pass.

Source: `trainer.fp8`, an autograd function of Python, whose names live as long as their frames.
"""

from __future__ import annotations

from torchledger.formula.lifetimes.autograd import Gradients, begun, ended
from torchledger.formula.lifetimes.memory import Memory
from torchledger.formula.lifetimes.tensors import Tensor, like_strides, made
from torchledger.formula.lifetimes.views import first, reshape


def narrow_linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Map y = x Wᵀ + b with the three products in FP8."""
    rows = reshape(x, x.num_elements // x.shape[-1], x.shape[-1])
    return reshape(_product(rows, weight, bias), *x.shape[:-1], weight.shape[0])


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    node = begun((x, weight, bias))
    y, x_scale, weight_scale = _forward(x, weight)
    wants = [each is not None and each.needs_gradient for each in (x, weight, bias)]

    def back(kept: list[Tensor | None], g: Gradients, _: list[Tensor]) -> Gradients:
        return _backward(first(g), kept, wants)

    of_weight = (x, x_scale) if wants[1] else ()
    ended(node, back, y, keeps=(*of_weight, *((weight, weight_scale) if wants[0] else ())))
    return y


def _forward(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    x_scale, weight_scale = _scale(x), _scale(weight)
    small_x, small_weight = _quantized(x), _quantized(weight)
    y = _multiplied(x.memory, x.shape[0], weight.shape[0], x.number_format)
    del small_x, small_weight
    return y, x_scale, weight_scale


def _backward(dy: Tensor, kept: list[Tensor | None], wants: list[bool]) -> Gradients:
    x, weight = (kept[0] if wants[1] else None), (kept[2 * wants[1]] if wants[0] else None)
    dx = dw = None
    held: list[Tensor] = []  # names that live until the function returns
    if x is not None or weight is not None:
        held += [_scale(dy), _quantized(dy)]
        dw = None if x is None else _weight_gradient(held[1], x, dy.number_format)
        if weight is not None:
            held.append(_quantized(weight))
            dx = _multiplied(dy.memory, dy.shape[0], weight.shape[1], dy.number_format)
    db = made(dy.memory, dy.shape[1:], dy.number_format) if wants[2] else None
    del held
    return [dx, dw, db]


def _weight_gradient(small: Tensor, x: Tensor, number_format: str) -> Tensor:
    columns = _quantized(x)
    rows = made(small.memory, small.shape[::-1], "fp8")
    dw = _multiplied(small.memory, small.shape[1], x.shape[1], number_format)
    del columns, rows
    return dw


def _scale(x: Tensor) -> Tensor:
    """From the smallest and the largest number to FP64 and back (`tensor_scale`)."""
    memory = x.memory
    ends = [made(memory, (), x.number_format) for _ in range(2)]
    negative = made(memory, (), x.number_format)
    largest = made(memory, (), x.number_format)
    del negative
    wide = made(memory, (), "fp64")
    del largest
    clamped = made(memory, (), "fp64")
    del wide
    inverse = made(memory, (), "fp64")
    quotient = made(memory, (), "fp64")
    del inverse
    scale = made(memory, (), "fp32")
    del ends, clamped, quotient
    return scale


def _quantized(x: Tensor) -> Tensor:
    wide = made(x.memory, x.shape, "fp32", like_strides(x))
    small = made(x.memory, x.shape, "fp8")
    del wide
    return small


def _multiplied(memory: Memory, rows: int, columns: int, number_format: str) -> Tensor:
    scales = [made(memory, (), "fp32") for _ in range(2)]
    y = made(memory, (rows, columns), number_format)
    del scales
    return y
