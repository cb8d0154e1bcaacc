"""Linear maps whose products run in FP8: E4M3 values forward, E5M2 gradients, a scale a tensor found as it is cast.

The recipe is that of arXiv:2209.05433 (FP8 Formats for Deep Learning, section 3: E4M3 for weights and activations, E5M2
for gradients) with the scales of torchao's "tensorwise" float8 training (github.com/pytorch/ao, torchao/float8): a
tensor is multiplied by the format's largest number over its own largest magnitude, read anew at every cast, so that
nothing is remembered from step to step and a run resumes bit for bit.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["GRADIENT", "VALUE", "fp8_linear", "fp8_product", "padded", "quantize", "tensor_scale"]

#: Formats of values (activations, weights) and of gradients.
VALUE, GRADIENT = torch.float8_e4m3fn, torch.float8_e5m2
_SMALLEST = 1e-12  # magnitude that a scale is made for (torchao): a tensor of zeros has no largest one to divide by
_ROWS = 16  # the matrix units of CUDA contract over multiples of so many (torch._scaled_mm)


def fp8_linear(x: Float[Tensor, "... inputs"], weight: Float[Tensor, "outputs inputs"], bias: Tensor | None) -> Tensor:
    """Map y = x Wᵀ + b in the format of x, its three products in FP8 with sums in FP32.

    Kept for the gradient are x and W as they came, and their two scales: what is cast is cast again in the backward
    pass, where the products want it laid out otherwise, and x is often kept by its maker already.

    Args:
        x: a batch of rows.
        weight: in the format of x. Both of its sizes are multiples of 16 (`formula.narrow.runs_narrow`).
        bias: [outputs], in the format of x.
    """
    if not x.numel():  # an expert that nobody chose: no largest magnitude
        return nn.functional.linear(x, weight, bias)
    rows = x.reshape(-1, x.shape[-1])
    y: Tensor = _Product.apply(rows, weight, bias)  # type: ignore[no-untyped-call]
    return y.reshape(*x.shape[:-1], weight.shape[0])


def tensor_scale(x: Tensor, dtype: torch.dtype) -> Float[Tensor, ""]:
    """The number to multiply `x` by before it is cast: its largest magnitude becomes the format's largest number.

    What is no number in `x` makes the scale none, and so everything that is multiplied by it.

    >>> tensor_scale(torch.tensor([3.5, -7.0]), torch.float8_e4m3fn)  # 448 / 7
    tensor(64.)
    """
    low, high = torch.aminmax(x)  # one pass that makes nothing, on a CPU ten times as fast as the largest of abs(x)
    largest = torch.maximum(-low, high).double().clamp(min=_SMALLEST)
    return (torch.finfo(dtype).max / largest).float()


def quantize(x: Float[Tensor, "rows columns"], scale: Float[Tensor, ""], dtype: torch.dtype) -> Tensor:
    """`x` times its scale, to the nearest number of `dtype`. Contiguous, also where `x` is transposed.

    Multiplied in FP32: in 16 bit it would be rounded twice. The largest may end a rounding above the format's largest
    number, and is rounded back to it.
    """
    wide = x.float() if x.dtype != torch.float32 else x.clone()
    return wide.mul_(scale).to(dtype, memory_format=torch.contiguous_format)


def fp8_product(
    left: Tensor, right: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype, *, bias: Tensor | None = None
) -> Tensor:
    """Product left [m, k] @ right [k, n] + bias, unscaled, in `dtype`. CUDA wants `left` by rows, `right` by columns.

    Forward, Hopper's units may sum in fewer bits than FP32 (`use_fast_accum`), in the backward pass never: torchao's
    defaults.
    """
    of_left, of_right = (scale.reciprocal() for scale in scales)
    forward = left.dtype == right.dtype == VALUE
    y: Tensor = torch._scaled_mm(  # noqa: SLF001  # torch has no other name for it
        left, right, scale_a=of_left, scale_b=of_right, bias=bias, out_dtype=dtype, use_fast_accum=forward
    )
    return y


class _Product(torch.autograd.Function):
    """y = x Wᵀ + b of two dimensions, and its gradients dx = dy W, dW = dyᵀ x, db = Σ dy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        x_scale, weight_scale = tensor_scale(x, VALUE), tensor_scale(weight, VALUE)
        small_x, small_weight = quantize(x, x_scale, VALUE), quantize(weight, weight_scale, VALUE)
        wants_x, wants_weight, _ = ctx.needs_input_grad
        ctx.save_for_backward(
            *((x, x_scale) if wants_weight else (None, None)),
            *((weight, weight_scale) if wants_x else (None, None)),
        )
        return fp8_product(small_x, small_weight.t(), (x_scale, weight_scale), x.dtype, bias=bias)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, x_scale, weight, weight_scale = ctx.saved_tensors
        dx = dw = None
        if x is not None or weight is not None:
            dy_scale = tensor_scale(dy, GRADIENT)
            small = quantize(dy, dy_scale, GRADIENT)
            if x is not None:  # first, so that what it casts is not there beside dx
                dw = _weight_gradient(small, x, (dy_scale, x_scale), dy.dtype)
            if weight is not None:
                columns = quantize(weight.t(), weight_scale, VALUE).t()
                dx = fp8_product(small, columns, (dy_scale, weight_scale), dy.dtype)
        db = dy.sum(dim=0) if ctx.needs_input_grad[2] else None
        return dx, dw, db


def _weight_gradient(small: Tensor, x: Tensor, scales: tuple[Tensor, Tensor], dtype: torch.dtype) -> Tensor:
    columns = _whole_rows(quantize(x.t(), scales[1], VALUE)).t()
    return fp8_product(_whole_rows(small.t().contiguous()), columns, scales, dtype)


def _whole_rows(small: Tensor) -> Tensor:
    """[width, tokens] with zeros up to a multiple of 16 tokens, on CUDA: experts take any number of tokens."""
    return padded(small) if small.is_cuda and small.shape[1] % _ROWS else small


def padded(small: Float[Tensor, "width tokens"]) -> Float[Tensor, "width multiple"]:
    """With columns of zeros up to a multiple of 16: they add nothing to a product that contracts over them.

    >>> padded(torch.ones(2, 5).to(torch.float8_e5m2)).shape
    torch.Size([2, 16])
    """
    wide = torch.zeros(small.shape[0], -(-small.shape[1] // _ROWS) * _ROWS, dtype=small.dtype, device=small.device)
    wide[:, : small.shape[1]] = small
    return wide
