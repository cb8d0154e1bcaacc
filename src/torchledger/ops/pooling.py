"""Pooling: windows of an input to one value each, forward and backward, in any number of dimensions.

A window of v elements takes v - 1 compares (max) or v - 1 adds and a multiply by 1/v (average). Windows over the edge
are as small as what lies inside the input, so elements are counted window by window, not as kernel size times outputs:
along one dimension `windows` tells them, and the elements of all windows are the product over dimensions.
"""

from __future__ import annotations

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
def max_pool(outputs: Amount, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The largest of each window, and where it was.

    Args:
        outputs: windows, of all channels and samples.
        elements: elements of all of them (`windows`, `adaptive_windows`).
        element_bytes: bytes of an element.

    >>> max_pool(12, 48)[0].work.flops_full  # 12 windows of 4
    36
    """
    work = Work.of_flops(
        elements - outputs, bytes_read=element_bytes * elements, bytes_written=(element_bytes + 8) * outputs
    )
    return (Piece("max_pool", "reduction", work, _shape(outputs, elements)),)


@rule
def max_pool_backward(outputs: Amount, inputs: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The gradient of each window added where its largest was: one add a window.

    >>> max_pool_backward(4, 16)[0].work.flops_full
    4
    """
    work = Work.of_flops(outputs, bytes_read=(element_bytes + 8) * outputs, bytes_written=element_bytes * inputs)
    return (Piece("max_pool_backward", "reduction", work, (("windows", outputs), ("inputs", inputs)), "input"),)


@rule
def average_pool(outputs: Amount, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The mean of each window: v - 1 adds and a multiply.

    >>> average_pool(12, 48)[0].work.flops_full
    48
    """
    work = Work.of_flops(elements, bytes_read=element_bytes * elements, bytes_written=element_bytes * outputs)
    return (Piece("average_pool", "reduction", work, _shape(outputs, elements)),)


@rule
def average_pool_backward(outputs: Amount, elements: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The gradient dy/v of a window, added to each of its elements.

    >>> average_pool_backward(12, 48)[0].work.flops_full  # 12 + 48
    60
    """
    work = Work.of_flops(outputs + elements, bytes_read=element_bytes * outputs, bytes_written=element_bytes * elements)
    return (Piece("average_pool_backward", "reduction", work, _shape(outputs, elements), "input"),)


def _shape(outputs: Amount, elements: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("windows", outputs), ("elements", elements))
