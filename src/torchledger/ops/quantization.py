"""Numbers rounded to a grid: quantize, dequantize, and the two of them one after the other in training."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Name -> FLOPs an element (aten/src/ATen/native/quantized/cpu/kernels/QuantizedOpKernels.cpp).
grids: Mapping[str, int] = {
    "quantize": 5,  # x·1/s, rounded, + z, two compares
    "dequantize": 2,  # (q - z)·s
    "fake_quantize": 9,  # both, and two compares for the mask that is kept
    # x·1/s, rounded, + z, clamped 2, (q - z)·s 2, inside?; dy·(x̂ - x)·1/s·g 4: the gradients of s and z with that of x
    "fake_quantize_learnable_backward": 12,
}


@rule
def quantized(name: str, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """`name` of each of `elements` elements.

    Raises:
        KeyError: `name` is not in `grids`.

    >>> quantized("fake_quantize", 10)[0].work.flops_full
    90
    """
    moved = element_bytes * elements
    work = Work.of_flops(grids[name] * elements, bytes_read=moved, bytes_written=moved)
    return (Piece(name, "pointwise", work, (("elements", elements),)),)
