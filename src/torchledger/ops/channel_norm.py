"""Normalization by channel or group, and of weights: BatchNorm, GroupNorm, weight norm, renorm.

A channel of BatchNorm is normalized over batch and positions: `size` elements in each of `channels` channels.
"""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def batch_norm(
    channels: Amount,
    size: Amount,
    *,
    training: bool = True,
    affine: bool = True,
    bias: bool = True,
    running: bool = True,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """Forward y = (x - μ)/√(σ² + ε)·w + b (Ioffe and Szegedy, arXiv:1502.03167, algorithms 1 and 2).

    A channel of n, training: sum n - 1, ·1/n, differences n, squares n, sum n - 1, ·1/n; then r + m·(new - r) of the
    running mean and variance, 3 each, and n/(n - 1) of the variance. Always: + ε, 1/√, a = w/√, b - μ·a, a·x + that.

    >>> batch_norm(2, 8)[0].work.flops_full, batch_norm(2, 8, training=False)[0].work.flops_full  # 2·(6·8 + 11), 2·20
    (118, 40)
    """
    statistics = (4 * size if training else 0) + (7 if training and running else 0)
    shift = (1 if affine else 0) + (2 if affine and bias else 1)
    work = Work.of_flops(
        channels * (statistics + 1 + shift + 2 * size),
        transcendentals=channels,
        bytes_read=element_bytes * channels * (size + (2 if affine else 0)),
        bytes_written=element_bytes * channels * (size + (2 if training else 0)),
    )
    return (Piece("batch_norm", "normalization", work, _channels(channels, size)),)


@rule
def batch_norm_backward(
    channels: Amount, size: Amount, *, training: bool = True, affine: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Input gradient dx = (dy - mean(dy) - (x - μ)·k)·r·w with k = r²·mean((x - μ)·dy); dw = r·sum((x - μ)·dy), db.

    A channel of n, training: sum of dy n - 1, (x - μ)·dy 2n, its sum n - 1, the two means and k 4, r·w, then 5n.
    Weight: one product, the sums are there. Evaluation, where μ and r are constants: + ε, 1/√, r·w, n products;
    weight and bias 3n - 1, a product, n - 1.

    >>> [piece.work.flops_full for piece in batch_norm_backward(2, 8)]  # 2·(9·8 + 3), 2
    [150, 2]
    >>> [piece.work.flops_full for piece in batch_norm_backward(2, 8, training=False)]  # 2·(8 + 2), 2·(4·8 - 1)
    [20, 62]
    """
    weighted = 1 if affine else 0
    per_channel = 9 * size + 2 + weighted if training else size + 1 + weighted
    work = Work.of_flops(
        channels * per_channel,
        transcendentals=0 if training else channels,
        bytes_read=element_bytes * channels * ((2 if training or affine else 1) * size + 2 + weighted),
        bytes_written=element_bytes * channels * size,
    )
    pieces = (Piece("batch_norm_backward", "normalization", work, _channels(channels, size), "input"),)
    if not affine:
        return pieces
    gradients = Work.of_flops(channels * (1 if training else 4 * size - 1), bytes_written=2 * element_bytes * channels)
    return (*pieces, Piece("batch_norm_backward", "normalization", gradients, _channels(channels, size), "weight"))


@rule
def group_norm(
    batch: Amount, channels: Amount, size: Amount, groups: Amount, *, affine: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Forward y = (x - μ)/√(σ² + ε)·w + b over the channels of a group (Wu and He, arXiv:1803.08494, equations 1 to 6).

    A group of n = channels/groups·size: 4n and + ε for μ and σ², 1/√; a channel: a = w/√, b - μ·a; 2 an element.

    >>> group_norm(2, 4, 8, 2)[0].work.flops_full  # 2·2·(4·16 + 1) + 2·4·3 + 2·(2·4·8)
    412
    """
    elements = batch * channels * size
    work = Work.of_flops(
        4 * elements + batch * groups + (3 if affine else 1) * batch * channels + 2 * elements,
        transcendentals=batch * groups,
        bytes_read=element_bytes * (elements + (2 * channels if affine else 0)),
        bytes_written=element_bytes * (elements + 2 * batch * groups),
    )
    return (Piece("group_norm", "normalization", work, (*_channels(channels, size), ("groups", groups))),)


@rule
def group_norm_backward(
    batch: Amount, channels: Amount, size: Amount, groups: Amount, *, affine: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Input gradient dx = c₁·dy + c₂·x + c₃ with the sums of dy·x and dy a channel, weighted and summed a group.

    aten/src/ATen/native/cpu/group_norm_kernel.cpp. A channel: 2·size - 1 and size - 1 for the sums. A group of d
    channels: both times w 2d, both sums 2·(d - 1), c₂ = (S_dy·μ - S_dyx)·r³/n 6, c₃ = -c₂·μ - S_dy·r/n 4, c₁ = r·w d;
    4 an element. Weight: (sum dy·x - sum dy·μ)·r, 3 a channel, and both summed over the batch.

    >>> [piece.work.flops_full for piece in group_norm_backward(2, 4, 8, 2)]  # 7·64 - 2·8 + 5·8 + 8·4, 3·8 + 2·4
    [504, 32]
    """
    elements, of_channels = batch * channels * size, batch * channels
    sums = 3 * elements - 2 * of_channels
    combined = (5 if affine else 2) * of_channels + 8 * batch * groups
    work = Work.of_flops(
        sums + combined + 4 * elements,
        bytes_read=element_bytes * (2 * elements + 2 * batch * groups + (channels if affine else 0)),
        bytes_written=element_bytes * elements,
    )
    shape = (*_channels(channels, size), ("groups", groups))
    pieces = (Piece("group_norm_backward", "normalization", work, shape, "input"),)
    if not affine:
        return pieces
    gradients = Work.of_flops(3 * of_channels + 2 * (batch - 1) * channels, bytes_written=2 * element_bytes * channels)
    return (*pieces, Piece("group_norm_backward", "normalization", gradients, shape, "weight"))


@rule
def weight_norm(rows: Amount, size: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Forward w = g·v/‖v‖ (Salimans and Kingma, arXiv:1602.07868, equation 2): norm 2n - 1 and √, g/‖v‖, n products.

    >>> weight_norm(2, 8)[0].work.flops_full, weight_norm(2, 8)[0].work.transcendentals  # 2·(3·8 - 1), 2·2
    (46, 4)
    """
    work = Work.of_flops(
        rows * (3 * size - 1),
        transcendentals=2 * rows,
        bytes_read=element_bytes * rows * (size + 1),
        bytes_written=element_bytes * rows * (size + 1),
    )
    return (Piece("weight_norm", "normalization", work, (("rows", rows), ("size", size))),)


@rule
def weight_norm_backward(rows: Amount, size: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Gradients dg = v·dw/‖v‖; dv = g/‖v‖·(dw - v·(v·dw)/‖v‖²): a row of n 2n - 1, then 3n and ‖v‖²; three divisions.

    >>> weight_norm_backward(2, 8)[0].work.flops_full  # 2·5·8
    80
    """
    work = Work.of_flops(
        rows * 5 * size,
        transcendentals=3 * rows,
        bytes_read=element_bytes * rows * (2 * size + 2),
        bytes_written=element_bytes * rows * (size + 1),
    )
    return (Piece("weight_norm_backward", "normalization", work, (("rows", rows), ("size", size)), "weight"),)


@rule
def renorm(rows: Amount, size: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Rows scaled to a largest norm: the norm 2n - 1 and √, a compare, + ε, a division, n products.

    >>> renorm(2, 8)[0].work.flops_full  # 2·(3·8 + 1)
    50
    """
    moved = element_bytes * rows * size
    work = Work.of_flops(rows * (3 * size + 1), transcendentals=2 * rows, bytes_read=moved, bytes_written=moved)
    return (Piece("renorm", "normalization", work, (("rows", rows), ("size", size))),)


def _channels(channels: Amount, size: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("channels", channels), ("size", size))
