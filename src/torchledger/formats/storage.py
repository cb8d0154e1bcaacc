"""What tensors of a format take in memory."""

from collections.abc import Iterable
from math import prod
from typing import Any

from torchledger.formats.block import BlockFormat
from torchledger.formats.catalog import Format, find
from torchledger.formats.format import FormatError


def tensor_bytes(shape: Iterable[int], number_format: str | Format) -> int:
    """Bytes of a dense tensor, the scales of its blocks included. An empty shape is a scalar.

    The feed-forward matrix of GPT-3 (4·12,288 by 12,288) in FP32 is 2,304 MiB:

    >>> tensor_bytes((49152, 12288), "fp32") == 2304 * 2**20
    True

    Elements narrower than a byte are packed without gaps, each row (the last axis) into whole bytes. Blocks lie along
    the last axis; the last of a row may be short, and has a scale of its own:

    >>> tensor_bytes((2, 40), "mxfp4") == 2 * (40 * 4 // 8 + 2)
    True

    Kernels may pad more: cuBLAS wants scales in tiles of 128 rows by 4 blocks.

    Raises:
        FormatError: the format is unknown, or a size is negative or no whole number.
    """
    elements, scales = tensor_parts(shape, number_format)
    return elements + scales


def tensor_parts(shape: Iterable[int], number_format: str | Format) -> tuple[int, int]:
    """Bytes of the elements of a dense tensor, and bytes of its scales.

    Raises:
        FormatError: the format is unknown, or a size is negative or no whole number.
    """
    sizes: tuple[Any, ...] = tuple(shape)
    if any(not isinstance(size, int) or isinstance(size, bool) or size < 0 for size in sizes):
        raise FormatError(f"a shape has whole sizes of at least 0, got {sizes}")
    fmt = find(number_format)
    rows: int = prod(sizes[:-1])
    columns: int = sizes[-1] if sizes else 1
    if not isinstance(fmt, BlockFormat):
        return rows * -(-columns * fmt.stored_bits // 8), 0
    scales = rows * -(-columns // fmt.block_size) * (fmt.scale.bits // 8)
    if fmt.tensor_scale is not None and rows * columns:
        scales += fmt.tensor_scale.bits // 8
    return rows * -(-columns * fmt.element.bits // 8), scales
