"""Pooling: windows of an input to one value each, forward and backward, in any number of dimensions.

A window of v elements takes v - 1 compares (max) or v - 1 adds and a multiply by 1/v (average). Windows over the edge
are as small as what lies inside the input, so elements are counted window by window, not as kernel size times outputs:
along one dimension `windows` tells them, and the elements of all windows are the product over dimensions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


def windows(size: int, outputs: int, kernel: int, *, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """Elements inside the input of all windows along one dimension.

    >>> windows(4, 4, 3, padding=1)  # 2 + 3 + 3 + 2
    10
    """
    total = 0
    for output in range(outputs):
        start = output * stride - padding
        first = max(0, -(start // dilation)) if start < 0 else 0  # ⌈-start / dilation⌉, the first tap inside
        last = min(kernel - 1, (size - 1 - start) // dilation)
        total += max(0, last - first + 1)
    return total


def adaptive_windows(size: int, outputs: int) -> int:
    """Elements of all windows of adaptive pooling along one dimension: ⌊i·n/o⌋ to ⌈(i + 1)·n/o⌉.

    >>> adaptive_windows(5, 3)  # 0:2, 1:4, 3:5
    7
    """
    return sum(-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs))


@rule
def max_pool(
    channels: Amount, outputs: Sequence[int], elements: Iterable[int], *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """The largest of each window, and where it was.

    Args:
        channels: batch x channels.
        outputs: windows along each dimension.
        elements: elements of all windows along each dimension (`windows`, `adaptive_windows`).
        element_bytes: bytes of an element.

    >>> max_pool(3, (2, 2), (4, 4))[0].work.flops_full  # 3·(4·4 - 2·2)
    36
    """
    values, visited = channels * prod(outputs), channels * prod(elements)
    work = Work.of_flops(
        visited - values, bytes_read=element_bytes * visited, bytes_written=(element_bytes + 8) * values
    )
    return (Piece("max_pool", "reduction", work, _shape(values, visited)),)


@rule
def max_pool_backward(outputs: Amount, inputs: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The gradient of each window added where its largest was: one add a window.

    >>> max_pool_backward(4, 16)[0].work.flops_full
    4
    """
    work = Work.of_flops(outputs, bytes_read=(element_bytes + 8) * outputs, bytes_written=element_bytes * inputs)
    return (Piece("max_pool_backward", "reduction", work, (("windows", outputs), ("inputs", inputs)), "input"),)


@rule
def average_pool(
    channels: Amount, outputs: Sequence[int], elements: Iterable[int], *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """The mean of each window: v - 1 adds and a multiply.

    >>> average_pool(3, (2, 2), (4, 4))[0].work.flops_full  # 3·4·4
    48
    """
    values, visited = channels * prod(outputs), channels * prod(elements)
    work = Work.of_flops(visited, bytes_read=element_bytes * visited, bytes_written=element_bytes * values)
    return (Piece("average_pool", "reduction", work, _shape(values, visited)),)


@rule
def average_pool_backward(
    channels: Amount, outputs: Sequence[int], elements: Iterable[int], *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """dy/v a window, added to each of its elements.

    >>> average_pool_backward(3, (2, 2), (4, 4))[0].work.flops_full  # 3·(2·2 + 4·4)
    60
    """
    values, visited = channels * prod(outputs), channels * prod(elements)
    work = Work.of_flops(values + visited, bytes_read=element_bytes * values, bytes_written=element_bytes * visited)
    return (Piece("average_pool_backward", "reduction", work, _shape(values, visited), "input"),)


def _shape(values: Amount, visited: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("windows", values), ("elements", visited))
