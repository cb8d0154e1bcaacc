"""Prices of convolutions, whichever library runs them."""

from __future__ import annotations

from typing import Any

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.signature import TensorMeta

_PLAIN = (
    "mkldnn_convolution", "cudnn_convolution", "cudnn_convolution_relu", "cudnn_convolution_add_relu",
    "miopen_convolution", "miopen_convolution_relu", "miopen_convolution_add_relu", "miopen_depthwise_convolution",
    "mps_convolution", "_mps_convolution", "_slow_conv2d_forward", "thnn_conv2d", "slow_conv3d", "slow_conv3d_forward",
    "slow_conv_dilated2d", "slow_conv_dilated3d", "_conv_depthwise2d", "conv_depthwise3d",
    "_nnpack_spatial_convolution",
    "mkldnn::_convolution_pointwise",
)  # fmt: skip
_TRANSPOSED = (
    "slow_conv_transpose2d", "slow_conv_transpose3d", "cudnn_convolution_transpose", "miopen_convolution_transpose",
    "_mps_convolution_transpose", "mkldnn::_convolution_transpose_pointwise",
)  # fmt: skip
_ACTIVATED = (
    "cudnn_convolution_relu", "cudnn_convolution_add_relu", "miopen_convolution_relu", "miopen_convolution_add_relu",
)  # fmt: skip


@price_of("convolution", "_convolution", "convolution_overrideable")
def convolution(seen: Seen) -> tuple[Piece, ...]:
    """A convolution, plain or transposed, of any number of dimensions."""
    transposed = bool(seen.arguments["transposed"])
    return _forward(seen, seen.tensor("input"), transposed=transposed)


@price_of(*_PLAIN)
def plain_convolution(seen: Seen) -> tuple[Piece, ...]:
    """One kernel of a plain convolution; an activation that runs inside it is a piece of its own."""
    pieces = _forward(seen, _input(seen), transposed=False)
    if seen.op in _ACTIVATED:
        added = ops.pointwise("add", seen.num_results) if seen.optional("z") is not None else ()
        pieces += (*added, *ops.pointwise("relu", seen.num_results))
    return pieces


@price_of(*_TRANSPOSED)
def transposed_convolution(seen: Seen) -> tuple[Piece, ...]:
    """One kernel of a transposed convolution."""
    return _forward(seen, _input(seen), transposed=True)


@price_of("convolution_backward", "convolution_backward_overrideable", "_slow_conv2d_backward")
def convolution_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradients that its mask asks for, a piece each: of the input, the weight and the bias."""
    x, gradient = _input(seen), seen.tensor("grad_output")
    sizes = _sizes(seen, x, gradient, transposed=bool(seen.arguments.get("transposed")))
    of_input, of_weight, of_bias = seen.flags("output_mask")
    pieces: tuple[Piece, ...] = ()
    if of_input:
        pieces += ops.convolution_input_gradient(**sizes)
    if of_weight:
        pieces += ops.convolution_weight_gradient(**sizes)
    if of_bias:
        channels = gradient.shape[1]
        pieces += ops.convolution_bias_gradient(
            gradient.shape[0], size_of(gradient.shape[2:]), channels, element_bytes=gradient.dtype.itemsize
        )
    return pieces


@price_of("conv_tbc")
def convolution_of_time(seen: Seen) -> tuple[Piece, ...]:
    """A convolution along time, [time, batch, channels]; its kernel is [taps, inputs, outputs]."""
    (taps, inputs, outputs), (time, batch, _) = seen.tensor("weight").shape, seen.tensor("self").shape
    return ops.convolution(
        batch, time, seen.results[0].shape[0], inputs, outputs, taps, bias=True,
        element_bytes=seen.tensor("self").dtype.itemsize,
    )  # fmt: skip


def _input(seen: Seen) -> TensorMeta:
    return next(meta for name in ("input", "self", "X") if (meta := seen.optional(name)) is not None)


def _forward(seen: Seen, x: TensorMeta, *, transposed: bool) -> tuple[Piece, ...]:
    sizes = _sizes(seen, x, seen.results[0], transposed=transposed)
    bias = seen.optional("bias") or seen.optional("B")
    return ops.convolution(**sizes, bias=bias is not None)


def _sizes(seen: Seen, x: TensorMeta, y: TensorMeta, *, transposed: bool) -> dict[str, Any]:
    """Sizes of a convolution from x to y; a kernel is [outputs, inputs a group, ...], transposed [inputs, outputs ...].

    Groups follow from the tensors: depthwise kernels do not name them.
    """
    weight = seen.optional("weight") or seen.tensor("W")
    spatial = len(weight.shape) - 2
    channels = x.shape[-spatial - 1]
    batch = x.shape[0] if len(x.shape) > spatial + 1 else 1
    first, second = weight.shape[:2]
    groups = seen.arguments.get("groups") or (1 if transposed else channels // max(second, 1))
    inputs, outputs = (first // groups, second) if transposed else (second, first // groups)
    return {
        "batch": batch,
        "input_positions": size_of(x.shape[-spatial:]),
        "output_positions": size_of(y.shape[-spatial:]),
        "inputs": inputs,
        "outputs": outputs,
        "taps": size_of(weight.shape[2:]),
        "groups": groups,
        "transposed": transposed,
        "element_bytes": x.dtype.itemsize,
    }
