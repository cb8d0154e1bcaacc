"""What tensors of a format take in memory."""

from collections.abc import Iterable
from math import prod
from typing import Any

from torchledger.formats.catalog import get
from torchledger.formats.format import FormatError, NumberFormat


def tensor_bytes(shape: Iterable[int], number_format: str | NumberFormat) -> int:
    """Bytes of a dense tensor: elements times bytes per element. An empty shape is a scalar.

    The feed-forward matrix of GPT-3 (4·12,288 by 12,288) in FP32 is 2,304 MiB:

    >>> tensor_bytes((49152, 12288), "fp32") == 2304 * 2**20
    True

    Raises:
        FormatError: the format is unknown, or a size is negative or no whole number.
    """
    sizes: tuple[Any, ...] = tuple(shape)
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
        raise FormatError(f"a shape has whole sizes of at least 0, got {sizes}")
    elements: int = prod(sizes)
    return elements * get(number_format).bytes_per_element
