"""Prices of rounding to a grid."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of


@price_of("quantize_per_tensor", "quantize_per_channel", "quantize_per_tensor_dynamic")
def quantize(seen: Seen) -> tuple[Piece, ...]:
    """Numbers to integers; a dynamic grid first looks for the least and the largest."""
    pieces = ops.quantized("quantize", _elements(seen))
    return pieces + (ops.reduction("aminmax", 1, _elements(seen)) if seen.op.endswith("dynamic") else ())


@price_of("dequantize")
def dequantize(seen: Seen) -> tuple[Piece, ...]:
    """Integers to numbers."""
    return ops.quantized("dequantize", _elements(seen))


@price_of("fake_quantize_per_tensor_affine_cachemask", "fake_quantize_per_channel_affine_cachemask")
@price_of("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
@price_of("_fake_quantize_learnable_per_tensor_affine", "_fake_quantize_learnable_per_channel_affine")
def fake_quantize(seen: Seen) -> tuple[Piece, ...]:
    """To integers and back."""
    return ops.quantized("fake_quantize", _elements(seen))


@price_of("_fake_quantize_learnable_per_tensor_affine_backward")
@price_of("_fake_quantize_learnable_per_channel_affine_backward")
def fake_quantize_backward(seen: Seen) -> tuple[Piece, ...]:
    """Gradients of the numbers, of the scale and of the zero point, the last two summed."""
    elements = _elements(seen)
    scales = max(seen.tensor("scale").num_elements, 1)
    sums = ops.reduction("sum", 2 * scales, elements // scales)
    return ops.quantized("fake_quantize_learnable_backward", elements) + sums


def _elements(seen: Seen) -> int:
    return seen.first.num_elements
