"""Order: sorts, order statistics, searches, histograms.

A sort of n floating-point numbers is counted as the compares of a merge sort, n⌈log₂n⌉ - 2^⌈log₂n⌉ + 1 (Knuth, The Art
of Computer Programming 3, section 5.2.4), whatever algorithm runs; medians, modes and distinct values as the sort that
finds them. Comparing integers is no floating-point operation: sorts and searches of integers are bytes.
"""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


def sort_compares(n: int) -> int:
    """Compares of a merge sort of n numbers at worst.

    >>> [sort_compares(n) for n in (1, 2, 3, 4, 8)]
    [0, 1, 3, 5, 17]
    """
    levels = max(n - 1, 0).bit_length()
    return int(n * levels - 2**levels + 1) if n > 1 else 0


def search_compares(n: int) -> int:
    """Compares of a binary search among n: ⌈log₂(n + 1)⌉.

    >>> [search_compares(n) for n in (1, 3, 4)]
    [1, 2, 3]
    """
    return n.bit_length()


@rule
def order(
    rows: int, columns: int, *, op: str = "sort", floating: bool = True, extra: Amount = 0, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Each row in order.

    Args:
        rows: rows.
        columns: elements of a row.
        op: what the order is for.
        floating: whether they are floating-point numbers.
        extra: compares a row afterwards.
        element_bytes: bytes of an element.

    >>> order(2, 8)[0].work.flops_full, order(2, 8, floating=False)[0].work.flops_full  # 2·17
    (34, 0)
    """
    compares = rows * (sort_compares(columns) + extra) if floating else 0
    moved = element_bytes * rows * columns
    work = Work.of_flops(compares, bytes_read=moved, bytes_written=moved + 8 * rows * columns)
    return (Piece(op, "gather", work, (("rows", rows), ("columns", columns))),)


@rule
def search(
    values: int, boundaries: int, *, op: str = "search", floating: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """The place of each of `values` values among `boundaries` in order.

    >>> search(10, 7)[0].work.flops_full  # 10·3
    30
    """
    compares = values * search_compares(boundaries) if floating else 0
    work = Work.of_flops(compares, bytes_read=element_bytes * (values + boundaries), bytes_written=8 * values)
    return (Piece(op, "gather", work, (("values", values), ("boundaries", boundaries))),)


@rule
def histogram(
    elements: int, bins: int, *, weighted: bool = False, find_range: bool = False, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Elements counted into equal bins: in range 2 compares, (x - least)·bins/width 2 and a division, an add.

    Where the range is not given, least and largest are looked for first: 2·(n - 1) compares.

    >>> histogram(10, 4)[0].work.flops_full, histogram(10, 4, find_range=True)[0].work.flops_full  # 5·10 + 2·9
    (50, 68)
    """
    work = Work.of_flops(
        5 * elements + (2 * (elements - 1) if find_range else 0),
        transcendentals=elements,
        bytes_read=element_bytes * elements * (2 if weighted else 1),
        bytes_written=element_bytes * bins,
    )
    return (Piece("histogram", "reduction", work, (("elements", elements), ("bins", bins))),)
