"""RMSNorm and LayerNorm, forward and backward, the gradients of input and weight apart."""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def rms_norm(rows: Amount, size: Amount, *, affine: bool = True, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Forward y = x · 1/√(mean(x²) + ε) · w (Zhang and Sennrich, arXiv:1910.07467, equation 4).

    A row of n: n squares, n - 1 adds, ·1/n, + ε, 1/√, n products, and n more with w.

    >>> rms_norm(2, 8)[0].work.flops_full, rms_norm(2, 8, affine=False)[0].work.flops_full  # 2·(4·8 + 1), 2·(3·8 + 1)
    (66, 50)
    """
    weighted = 1 if affine else 0
    work = Work.of_flops(
        rows * ((3 + weighted) * size + 1),
        transcendentals=rows,
        bytes_read=element_bytes * (rows * size + weighted * size),
        bytes_written=element_bytes * rows * size,
    )
    return (Piece("rms_norm", "normalization", work, (("rows", rows), ("size", size))),)


@rule
def rms_norm_backward(
    rows: Amount, size: Amount, *, affine: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Input gradient dx = r·(g - x̂·mean(g·x̂)) with g = dy·w, x̂ = x·r, r = 1/√(mean(x²) + ε); dw = sum of dy·x̂.

    Input, a row of n: [g n], x̂ n, g·x̂ n, sum n - 1, ·1/n, then n products, n differences, n products.
    Weight: n products a row and (rows - 1)·n adds.

    >>> [(piece.gradient_of, piece.work.flops_full) for piece in rms_norm_backward(2, 8)]  # 2·(7·8), 2·8 + 8
    [('input', 112), ('weight', 24)]
    """
    weighted = 1 if affine else 0
    shape = (("rows", rows), ("size", size))
    work = Work.of_flops(
        rows * (6 + weighted) * size,
        bytes_read=element_bytes * (2 * rows * size + rows + weighted * size),
        bytes_written=element_bytes * rows * size,
    )
    pieces = (Piece("rms_norm_backward", "normalization", work, shape, "input"),)
    if not affine:
        return pieces
    weight = Work.of_flops(rows * size + (rows - 1) * size, bytes_written=element_bytes * size)
    return (*pieces, Piece("rms_norm_backward", "normalization", weight, shape, "weight"))


@rule
def layer_norm(
    rows: Amount, size: Amount, *, affine: bool = True, bias: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Forward y = (x - μ) · 1/√(σ² + ε) · w + b (Ba, Kiros and Hinton, arXiv:1607.06450, equation 4).

    A row of n: sum n - 1, ·1/n; differences n, squares n, sum n - 1, ·1/n, + ε, 1/√; n products; n with w; n with b.

    >>> layer_norm(2, 8)[0].work.flops_full  # 2·(7·8 + 1)
    114
    """
    weighted, biased = (1 if affine else 0), (1 if affine and bias else 0)
    work = Work.of_flops(
        rows * ((5 + weighted + biased) * size + 1),
        transcendentals=rows,
        bytes_read=element_bytes * (rows * size + (weighted + biased) * size),
        bytes_written=element_bytes * (rows * size + 2 * rows),
    )
    return (Piece("layer_norm", "normalization", work, (("rows", rows), ("size", size))),)


@rule
def layer_norm_backward(
    rows: Amount, size: Amount, *, affine: bool = True, bias: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Input gradient dx = r·(g - mean(g) - x̂·mean(g·x̂)) with g = dy·w, x̂ = (x - μ)·r; dw = sum dy·x̂; db = sum dy.

    Input, a row of n: [g n], x̂ 2n, sum of g n - 1, ·1/n, g·x̂ n, sum n - 1, ·1/n, then n products, 2n differences, n
    products.

    >>> [(piece.gradient_of, piece.work.flops_full) for piece in layer_norm_backward(2, 8)]  # 2·10·8; 2·8 + 8 + 8
    [('input', 160), ('weight', 32)]
    """
    weighted, biased = (1 if affine else 0), (1 if affine and bias else 0)
    shape = (("rows", rows), ("size", size))
    work = Work.of_flops(
        rows * (9 + weighted) * size,
        bytes_read=element_bytes * (2 * rows * size + 2 * rows + weighted * size),
        bytes_written=element_bytes * rows * size,
    )
    pieces = (Piece("layer_norm_backward", "normalization", work, shape, "input"),)
    if not affine:
        return pieces
    weight = Work.of_flops(
        rows * size + (1 + biased) * (rows - 1) * size, bytes_written=element_bytes * (1 + biased) * size
    )
    return (*pieces, Piece("layer_norm_backward", "normalization", weight, shape, "weight"))
