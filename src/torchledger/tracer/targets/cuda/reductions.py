"""Buffers of CUDA's reductions: where blocks share the work on one output, their parts meet in global memory.

`setReduceConfig` and `ReduceConfig` of aten/src/ATen/native/cuda/Reduce.cuh, for the case that needs large buffers:
sums over the leading dimensions of a contiguous tensor, such as the gradients of biases and of the weights of norms.
Sums along the last dimension need a few kilobytes, if anything.
"""

from __future__ import annotations

from collections.abc import Sequence

#: Threads of a block, of a warp; values a thread sums at least and at most before more blocks share an output.
_MAX_THREADS, _WARP, _MIN_VALUES, _MAX_VALUES = 512, 32, 16, 256
_INT_BYTES = 4


def buffers_of_sum(
    shape: Sequence[int], stride: Sequence[int], dims: Sequence[int], accumulator_bytes: int
) -> tuple[int, int] | None:
    """Bytes of the buffer of parts and of the semaphores; `None` where blocks share no output.

    The number of blocks is that of a GPU with enough multiprocessors to run them all at once, as those that are used
    for training have.

    Args:
        shape: sizes of the tensor.
        stride: its strides in elements.
        dims: the dimensions that are summed, none negative.
        accumulator_bytes: size of an element of the format that sums are made in.

    A gradient of 1,024 weights from 4 x 1,024 tokens, recorded on a GPU: 32 MiB and 8 semaphores.

    >>> buffers_of_sum((4, 1024, 1024), (1048576, 1024, 1), (0, 1), 4)
    (33554432, 32)
    """
    num_leading = len(dims)
    if not dims or sorted(dims) != list(range(num_leading)) or num_leading == len(shape):
        return None
    num_inputs, num_outputs = _product(shape[:num_leading]), _product(shape[num_leading:])
    if not num_inputs * num_outputs or not _is_contiguous(shape, stride):
        return None
    vector = next(size for size in (4, 2, 1) if num_outputs % size == 0)
    width, height = _block(num_outputs // vector, num_inputs, _MAX_THREADS // vector)
    if num_inputs < height * _MIN_VALUES and num_inputs < _MAX_VALUES:
        return None
    values = -(-num_inputs // height)
    if values < _MAX_VALUES:
        return None
    blocks_an_output = max(-(-values // _MIN_VALUES), -(-values // _MAX_VALUES))
    grid = -(-(num_outputs // vector) // width)
    return accumulator_bytes * num_outputs * blocks_an_output * width * vector, _INT_BYTES * grid


def _block(dim0: int, dim1: int, max_threads: int) -> tuple[int, int]:
    """Width and height of a block of threads (`set_block_dimension`)."""
    dim0, dim1 = _power_below(min(dim0, max_threads)), _power_below(min(dim1, max_threads))
    width = min(dim0, _WARP)
    height = min(dim1, max_threads // width)
    return min(dim0, max_threads // height), height


def _power_below(n: int) -> int:
    return 1 << (n.bit_length() - 1)


def _product(sizes: Sequence[int]) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _is_contiguous(shape: Sequence[int], stride: Sequence[int]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True
