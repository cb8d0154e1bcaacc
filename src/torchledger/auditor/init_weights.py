"""What a weight begins with: its spread, and rows and columns that are zero, constant, or copies of one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from torchledger.auditor.init_schemes import Sample

_MOST_VALUES = 2**22  # of a sample, and of a piece that is looked at in one go
_CHANCE = 1e-3  # of a copy that nobody made, in the whole matrix
_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a matrix, or its columns.

    Attributes:
        count: how many.
        zeros: how many are zero throughout.
        constants: how many are the same value throughout, and not zero.
        copies: how many are, bit for bit, what an earlier one is, zeros and constants apart.
        groups: for up to eight rows that have copies, which rows they are.
    """

    count: int
    zeros: int
    constants: int
    copies: int
    groups: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Values:
    """What a weight begins with.

    Attributes:
        sample: moments of its values, or of 4 million of them spread over it.
        is_zero: every value is 0.
        is_finite: no value is infinite or NaN.
        rows: what each output reads with.
        columns: what each input is written with.
        is_orthogonal: rows (or columns, of which there are fewer) stand upright on one another and are equally long.
        fingerprint: equal for equal weights.
    """

    sample: Sample
    is_zero: bool
    is_finite: bool
    rows: Rows
    columns: Rows
    is_orthogonal: bool
    fingerprint: int


def values_of(matrix: Tensor) -> Values:
    """Look at a matrix [outputs, inputs], pieces at a time.

    Args:
        matrix: float values on any device; a view is fine.
    """
    with torch.no_grad():
        matrix = matrix.detach()
        sample = sample_of(matrix)
        rows, columns, fingerprint = _duplicates(matrix)
        return Values(
            sample=sample,
            is_zero=rows.zeros == rows.count,
            is_finite=math.isfinite(sample.largest) and math.isfinite(sample.mean),
            rows=rows,
            columns=columns,
            is_orthogonal=_is_orthogonal(matrix),
            fingerprint=fingerprint,
        )


def sample_of(tensor: Tensor) -> Sample:
    """Moments of a tensor's values in double precision, of at most 4 million of them."""
    flat = tensor.detach().reshape(-1)
    stride = -(-flat.numel() // _MOST_VALUES)
    while stride > 1 and math.gcd(stride, tensor.shape[-1]) > 1:
        stride += 1  # or it would look at the same columns in every row
    x = flat[::stride].double()
    if not x.numel():
        return Sample(0, 0.0, 0.0, 3.0, 0.0)
    mean = x.mean()
    square = (x - mean).square_()
    variance = square.mean()
    kurtosis = (square.square_().mean() / variance.square()).item() if variance > 0 else 1.0
    return Sample(x.numel(), mean.item(), variance.sqrt().item(), kurtosis, x.abs().max().item())


def _duplicates(matrix: Tensor) -> tuple[Rows, Rows, int]:
    """Rows, columns, and a number of the whole.

    Sums of bits times random odd numbers, modulo 2⁶⁴, are equal for equal rows whatever the order of summing.
    """
    num_rows, num_columns = matrix.shape
    generator = torch.Generator().manual_seed(0)
    by_row, by_column = (
        (torch.randint(2**62, (n,), generator=generator) * 2 + 1).to(matrix.device) for n in (num_rows, num_columns)
    )
    rows, columns = [], torch.zeros(num_columns, dtype=torch.int64, device=matrix.device)
    high = low = None
    flat_rows = []
    for start, piece in _pieces(matrix):
        bits = piece.contiguous().view(_BITS[piece.element_size()]).long()
        rows.append((bits * by_column).sum(1))
        columns += (bits * by_row[start : start + len(piece), None]).sum(0)
        least, most = torch.aminmax(piece, dim=1)
        flat_rows.append(torch.stack((least == most, (least == 0) & (most == 0))))
        least, most = torch.aminmax(piece, dim=0)
        low = least if low is None else torch.minimum(low, least)
        high = most if high is None else torch.maximum(high, most)
    assert low is not None
    assert high is not None
    hashes, flat = torch.cat(rows), torch.cat(flat_rows, 1)
    fingerprint = int((hashes * by_row).sum())
    return (
        _rows(matrix, hashes, flat[0], flat[1], axis=0),
        _rows(matrix, columns, low == high, (low == 0) & (high == 0), axis=1),
        fingerprint,
    )


def _rows(matrix: Tensor, hashes: Tensor, flat: Tensor, zero: Tensor, *, axis: int) -> Rows:
    """What is alike along an axis. Where so few values a row make copies likely by chance, none are counted."""
    num_zeros = int(zero.sum())
    told = (len(hashes), num_zeros, int(flat.sum()) - num_zeros if matrix.shape[1 - axis] > 1 else 0)
    if _chance(matrix) >= _CHANCE:
        return Rows(*told, 0)
    order = torch.argsort(hashes, stable=True)
    is_copy = torch.zeros_like(flat)
    is_copy[1:] = hashes[order][1:] == hashes[order][:-1]
    is_copy &= ~flat[order]
    copies = int(is_copy.sum())
    groups: list[list[int]] = []
    for place in torch.nonzero(is_copy).flatten()[:64].tolist():
        first, second = int(order[place - 1]), int(order[place])
        if groups and groups[-1][-1] == first:
            groups[-1].append(second)
        elif torch.equal(matrix.select(axis, first), matrix.select(axis, second)) and len(groups) < 8:
            groups.append([first, second])
    return Rows(*told, copies if groups else 0, tuple(tuple(group) for group in groups))


def _chance(matrix: Tensor) -> float:
    """About how many rows or columns would be copies by chance: 8 bits of a 16-bit value differ, 20 of a longer one."""
    bits = 8 if matrix.element_size() == 2 else 20
    return sum(n * n / 2 * 2.0 ** -min(bits * m, 1000) for n, m in (matrix.shape, matrix.shape[::-1]))


def _pieces(matrix: Tensor) -> Iterator[tuple[int, Tensor]]:
    step = max(1, _MOST_VALUES // matrix.shape[1])
    for start in range(0, matrix.shape[0], step):
        yield start, matrix[start : start + step]


def _is_orthogonal(matrix: Tensor) -> bool:
    """Whether 64 rows of the shorter side have a Gram matrix that is a multiple of one."""
    few = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.t()
    few = few[:64].double()
    if len(few) < 2 or few.shape[1] < 2:
        return False
    gram = few @ few.t()
    length = gram.diagonal().mean()
    if not torch.isfinite(length) or length == 0:
        return False
    return bool((gram / length - torch.eye(len(gram), dtype=gram.dtype, device=gram.device)).abs().max() < 1e-4)
