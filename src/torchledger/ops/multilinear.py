"""Contractions that are no single matrix product: trilinear forms, distances, grouped and sparse products."""

from __future__ import annotations

from dataclasses import replace

from torchledger.ledger import Amount, GradientOf, Work
from torchledger.ops.matmul import matmul
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def trilinear(
    first: Amount,
    second: Amount,
    *,
    first_sums: bool = True,
    second_sums: bool = True,
    element_bytes: Amount = 4,
    gradient_of: GradientOf = "none",
) -> tuple[Piece, ...]:
    """Three operands contracted pair by pair: the first with the second, what comes of it with the third.

    A bilinear form y_no = Σ_ij a_ni W_oij b_nj is t_noj = Σ_i a_ni W_oij, then Σ_j t_noj b_nj: that is how torch runs
    it (aten/src/ATen/native/Linear.cpp, `_trilinear`). A pair that sums over nothing is a product element by element.

    Args:
        first: multiplications of the first pair (the sizes of all its indices multiplied).
        second: those of the second.
        first_sums: whether the first pair sums over an index.
        second_sums: whether the second does.
        element_bytes: bytes of an element.
        gradient_of: whose gradient it is.

    >>> N, O, L, R = 32, 16, 64, 64
    >>> sum(piece.work.flops_full for piece in trilinear(N * O * L * R, N * O * R))  # 2·N·O·L·R + 2·N·O·R
    4259840
    """
    pieces = []
    for op, products, sums in (("trilinear", first, first_sums), ("trilinear_last", second, second_sums)):
        shape = (("products", products),)
        work = Work.of_flops(
            (2 if sums else 1) * products, bytes_read=element_bytes * products, bytes_written=element_bytes * products
        )
        pieces.append(Piece(op, "matmul" if sums else "pointwise", work, shape, gradient_of))
    return tuple(pieces)


@rule
def distances_by_product(
    batch: Amount, rows: Amount, columns: Amount, size: Amount, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Euclidean distances of two sets of points by |x - y|² = |x|² - 2·x·y + |y|²: one product, the rest by element.

    The product is counted as the formula has it, [rows, size] @ [size, columns]; torch appends the norms to it as two
    more columns (aten/src/ATen/native/Distance.cpp, `_euclidean_dist`), which are its sums here.

    >>> [piece.work.flops_full for piece in distances_by_product(1, 32, 16, 64)]
    ... # 2·32·16·64; norms 2·(32 + 16)·64 - (32 + 16), scale 32·64, two sums and a clamp 3·32·16
    [65536, 9680]
    """
    norms = 2 * (rows + columns) * size - (rows + columns)
    work = Work.of_flops(
        batch * (norms + rows * size + 3 * rows * columns),
        transcendentals=batch * rows * columns,
    )
    product = matmul(batch, rows, columns, size, element_bytes=element_bytes, op="distances")
    return (*product, Piece("distances_norms", "pointwise", work, (("elements", batch * rows * columns),)))


@rule
def distances(
    pairs: Amount, size: Amount, *, exponent: float = 2.0, element_bytes: Amount = 4, backward: bool = False
) -> tuple[Piece, ...]:
    """Distances of `pairs` pairs of points one by one: a difference, its power and a sum a coordinate, and a root.

    No contraction: the difference keeps the two operands apart. The gradient of a pair is as long again.

    >>> distances(32 * 16, 64)[0].work.flops_full  # 512·(3·64 - 1)
    97792
    """
    powers = 1 if exponent in {0.0, 1.0, 2.0, float("inf")} else 0
    roots = pairs if exponent not in {0.0, 1.0, float("inf")} else 0
    transcendentals = roots + (0 if powers else pairs * size)
    flops = pairs * ((2 + powers) * size - 1)
    work = Work.of_flops(
        flops + (pairs * size if backward else 0),
        transcendentals=transcendentals,
        bytes_read=2 * element_bytes * pairs * size,
        bytes_written=element_bytes * pairs,
    )
    name = "distances_backward" if backward else "distances"
    return (Piece(name, "pointwise", work, (("pairs", pairs), ("size", size)), "input" if backward else "none"),)


@rule
def grouped_matmul(
    groups: Amount,
    m: Amount,
    n: Amount,
    k: Amount,
    *,
    element_bytes: Amount = 4,
    gradient_of: GradientOf = "none",
) -> tuple[Piece, ...]:
    """`groups` products whose rows (or columns, or contracted indices) are shares of one tensor: 2·m·n·k in all.

    Args:
        groups: how many products.
        m: rows of all groups together where they are shared out, else of one.
        n: columns, likewise.
        k: contracted index, likewise.
        element_bytes: bytes of an element.
        gradient_of: whose gradient it is.

    >>> grouped_matmul(4, 64, 16, 32)[0].work.flops_full  # every row meets one expert: 2·64·16·32
    65536
    """
    work = Work.of_flops(
        2 * m * n * k,
        bytes_read=element_bytes * (m * k + groups * k * n),
        bytes_written=element_bytes * m * n,
    )
    shape = (("groups", groups), ("m", m), ("n", n), ("k", k))
    return (Piece("grouped_matmul", "matmul", work, shape, gradient_of),)


@rule
def sparse_matmul(
    values: Amount, columns: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8
) -> tuple[Piece, ...]:
    """A sparse matrix of `values` stored values @ a dense one of `columns` columns: 2·values·columns.

    >>> sparse_matmul(100, 16)[0].work.flops_full
    3200
    """
    work = Work.of_flops(
        2 * values * columns,
        bytes_read=(element_bytes + 2 * index_bytes) * values + element_bytes * values * columns,
        bytes_written=element_bytes * values * columns,
    )
    return (Piece("sparse_matmul", "matmul", work, (("values", values), ("columns", columns))),)


def at_most(piece: Piece, flops: Amount) -> Piece:
    """The piece with an unknown count of FLOPs, its shape telling the most it could be.

    >>> at_most(matmul(1, 2, 3, 4)[0], 48).shape[-1]
    ('at_most_flops', 48)
    """
    work = replace(piece.work, flops_full=None, flops_exact=None, flops_executed=None)
    return replace(piece, work=work, shape=(*piece.shape, ("at_most_flops", flops)))
