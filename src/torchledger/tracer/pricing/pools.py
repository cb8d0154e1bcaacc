"""Prices of pooling in one, two and three dimensions, forward and backward."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of


@price_of("max_pool2d_with_indices", "max_pool3d_with_indices", "mkldnn_max_pool2d", "mkldnn_max_pool3d")
def max_pool(seen: Seen) -> tuple[Piece, ...]:
    """The largest of each window, as much of it as lies inside."""
    return ops.max_pool(*_windows(seen, seen.results[0].shape))


@price_of("adaptive_max_pool2d", "adaptive_max_pool3d")
def adaptive_max_pool(seen: Seen) -> tuple[Piece, ...]:
    """The largest of each of so many windows."""
    return ops.max_pool(*_adaptive(seen.tensor("self").shape, seen.results[0].shape, seen))


@price_of("fractional_max_pool2d", "fractional_max_pool3d")
def fractional_max_pool(seen: Seen) -> tuple[Piece, ...]:
    """Windows at drawn places, all of them whole (Graham, arXiv:1412.6071)."""
    kernel = _sizes(seen, "kernel_size")
    return ops.max_pool(seen.num_results, seen.num_results * size_of(kernel))


@price_of("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "adaptive_max_pool2d_backward")
@price_of("adaptive_max_pool3d_backward", "fractional_max_pool2d_backward", "fractional_max_pool3d_backward")
@price_of("max_pool2d_backward", "mkldnn_max_pool2d_backward", "mkldnn_max_pool3d_backward")
def max_pool_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradient of each window to its largest."""
    return ops.max_pool_backward(seen.tensor("grad_output").num_elements, seen.tensor("self").num_elements)


@price_of("avg_pool1d", "avg_pool2d", "avg_pool3d")
def average_pool(seen: Seen) -> tuple[Piece, ...]:
    """The mean of each window."""
    return ops.average_pool(*_windows(seen, seen.results[0].shape))


@price_of("avg_pool2d_backward", "avg_pool3d_backward")
def average_pool_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradient of each window to all of its elements."""
    return ops.average_pool_backward(*_windows(seen, seen.tensor("grad_output").shape))


@price_of("adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "_adaptive_avg_pool2d")
@price_of("_adaptive_avg_pool3d", "mkldnn_adaptive_avg_pool2d")
def adaptive_average_pool(seen: Seen) -> tuple[Piece, ...]:
    """The mean of each of so many windows."""
    return ops.average_pool(*_adaptive(seen.tensor("self").shape, seen.results[0].shape, seen))


@price_of("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward")
@price_of("mkldnn_adaptive_avg_pool2d_backward")
def adaptive_average_pool_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradient."""
    return ops.average_pool_backward(*_adaptive(seen.tensor("self").shape, seen.tensor("grad_output").shape, seen))


def _windows(seen: Seen, outputs: tuple[int, ...]) -> tuple[int, int]:
    """Windows, and elements of all of them: along each dimension as many as lie inside."""
    kernel = _sizes(seen, "kernel_size")
    dimensions = len(kernel)
    stride = _sizes(seen, "stride", dimensions) or kernel
    padding = _sizes(seen, "padding", dimensions) or (0,) * dimensions
    dilation = _sizes(seen, "dilation", dimensions) or (1,) * dimensions
    inputs = seen.tensor("self").shape[-dimensions:]
    counts = outputs[-dimensions:]
    elements = tuple(
        ops.windows(inputs[i], counts[i], kernel[i], stride=stride[i], padding=padding[i], dilation=dilation[i])
        for i in range(dimensions)
    )
    return size_of(outputs), size_of(outputs[:-dimensions]) * size_of(elements)


def _adaptive(inputs: tuple[int, ...], outputs: tuple[int, ...], seen: Seen) -> tuple[int, int]:
    dimensions = next(int(number) for number in "123" if f"pool{number}d" in seen.op)
    counts = outputs[-dimensions:]
    elements = tuple(
        ops.adaptive_windows(size, count) for size, count in zip(inputs[-dimensions:], counts, strict=True)
    )
    return size_of(outputs), size_of(outputs[:-dimensions]) * size_of(elements)


def _sizes(seen: Seen, name: str, dimensions: int = 0) -> tuple[int, ...]:
    """A size for each dimension; one number stands for all of them."""
    value = seen.arguments.get(name)
    if value is None:
        return ()
    sizes = tuple(value[1:]) if isinstance(value, tuple) and value[:1] == ("list",) else value
    sizes = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    wanted = dimensions or next(int(number) for number in "123" if f"pool{number}d" in seen.op)
    return sizes * wanted if len(sizes) == 1 else sizes
