"""Interpolation: up- and downsampling, sampling at given points, forward and backward.

An output of d dimensions is a weighted sum of 2^d neighbours (linear) or 4^d (cubic), taken one dimension after the
other: a sum of k terms is k multiplies and k - 1 adds. Weights belong to a row or column, not to an element, and are
not counted where torch makes them once for all (Keys, IEEE Transactions on Acoustics 29, 1981, for the cubic ones).
"""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def interpolate(outputs: Amount, dimensions: int, taps: int, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """`taps` neighbours along each of `dimensions` to one output: (2·taps - 1)·(1 + taps + taps² ...) FLOPs.

    Args:
        outputs: elements of the result.
        dimensions: 1 to 3.
        taps: 1 nearest, 2 linear, 4 cubic.
        element_bytes: bytes of an element.

    >>> interpolate(10, 2, 2)[0].work.flops_full, interpolate(10, 2, 4)[0].work.flops_full  # 10·3·3; 10·7·5
    (90, 350)
    """
    sums = sum(taps**dimension for dimension in range(dimensions))
    flops = (2 * taps - 1) * sums if taps > 1 else 0
    work = Work.of_flops(
        flops * outputs, bytes_read=element_bytes * taps**dimensions * outputs, bytes_written=element_bytes * outputs
    )
    return (Piece("interpolate", "pointwise" if taps > 1 else "gather", work, _shape(outputs, taps**dimensions)),)


@rule
def interpolate_backward(
    outputs: Amount, dimensions: int, taps: int, *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """The gradient of each output added to its neighbours: d multiplies by weights and an add for each of taps^d.

    >>> interpolate_backward(10, 2, 2)[0].work.flops_full, interpolate_backward(10, 2, 1)[0].work.flops_full  # 4·3; 1
    (120, 10)
    """
    neighbours = taps**dimensions
    each = dimensions + 1 if taps > 1 else 1
    work = Work.of_flops(
        each * neighbours * outputs, bytes_read=element_bytes * outputs, bytes_written=element_bytes * outputs
    )
    return (Piece("interpolate_backward", "pointwise", work, _shape(outputs, neighbours), "input"),)


def antialiased_taps(size: int, outputs: int, support: float, *, align_corners: bool = False) -> tuple[int, ...]:
    """Taps of each output of an antialiased filter along one dimension, its width grown by the scale it shrinks by.

    aten/src/ATen/native/cpu/UpSampleKernel.cpp, `_compute_indices_min_size_weights_aa`.

    Args:
        size: inputs.
        outputs: outputs.
        support: half the filter's width at scale 1: 1 linear, 2 cubic, 3 Lanczos.
        align_corners: whether first and last points coincide.

    >>> antialiased_taps(4, 2, 1.0)  # centres 1 and 3, two inputs to each side, as far as there are any
    (3, 3)
    """
    scale = size / outputs
    if align_corners:
        scale = (size - 1) / (outputs - 1) if outputs > 1 else 0.0
    reach = support * max(scale, 1.0)
    counts = []
    for output in range(outputs):
        centre = scale * (output + 0.5)
        first = max(int(centre - reach + 0.5), 0)
        counts.append(min(int(centre + reach + 0.5), size) - first)
    return tuple(counts)


@rule
def interpolate_antialiased(
    channels: Amount,
    rows: Amount,
    outputs: tuple[Amount, Amount],
    taps: tuple[Amount, Amount],
    *,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """First along rows, then along columns: a sum of t terms is t multiplies and t - 1 adds.

    Args:
        channels: batch x channels.
        rows: input rows, which the first pass keeps.
        outputs: output rows and columns.
        taps: taps of all output rows together, and of all output columns (`antialiased_taps`).
        element_bytes: bytes of an element.

    >>> interpolate_antialiased(1, 4, (2, 2), (6, 6))[0].work.flops_full  # 4 rows·(2·6 - 2), 2 columns·(2·6 - 2)
    60
    """
    height, width = outputs
    across, down = rows * (2 * taps[1] - width), width * (2 * taps[0] - height)
    made = channels * height * width
    work = Work.of_flops(
        channels * (across + down),
        bytes_read=element_bytes * channels * rows * width,
        bytes_written=element_bytes * made,
    )
    return (Piece("interpolate_antialiased", "pointwise", work, (("outputs", made),)),)


@rule
def interpolate_antialiased_backward(
    channels: Amount, outputs: tuple[Amount, Amount], taps: tuple[Amount, Amount], *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Two multiplies and an add for each output and each of its taps.

    >>> interpolate_antialiased_backward(1, (2, 2), (6, 6))[0].work.flops_full  # 3·(6·6)
    108
    """
    made, visited = channels * outputs[0] * outputs[1], channels * taps[0] * taps[1]
    work = Work.of_flops(3 * visited, bytes_read=element_bytes * made, bytes_written=element_bytes * made)
    return (Piece("interpolate_antialiased_backward", "pointwise", work, _shape(made, visited), "input"),)


#: Operations at a sampling point, by mode: of its coordinates (each, then all together), of a channel there.
_SAMPLING = {"bilinear": 2, "nearest": 1, "bicubic": 4}


@rule
def grid_sample(
    points: Amount, channels: Amount, dimensions: int, mode: str = "bilinear", *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Values at points between the pixels (Jaderberg et al., arXiv:1506.02025, equation 5).

    A coordinate: from [-1, 1] to pixels ((x + 1)·n - 1)·½ 4, rounded down 1; linear: two distances 2, then the corners'
    weights, (d - 1) multiplies each; cubic: 3 distances and 4 weights, 22. A channel: the weighted sum of the corners
    (2·2^d - 1), cubic one dimension after the other (7·5), nearest a copy.

    Args:
        points: batch x output pixels.
        channels: channels.
        dimensions: 2 or 3.
        mode: `bilinear` (of d dimensions), `nearest` or `bicubic`.
        element_bytes: bytes of an element.

    >>> grid_sample(10, 3, 2)[0].work.flops_full  # 10·(2·7 + 4) + 30·7
    390
    """
    corners = _SAMPLING[mode] ** dimensions
    if mode == "bicubic":
        point, channel = dimensions * (5 + 3 + 22), 7 * 5
    elif mode == "nearest":
        point, channel = dimensions * 5, 0
    else:
        point, channel = dimensions * 7 + corners * (dimensions - 1), 2 * corners - 1
    work = Work.of_flops(
        points * (point + channels * channel),
        bytes_read=element_bytes * points * (dimensions + channels * corners),
        bytes_written=element_bytes * points * channels,
    )
    return (Piece("grid_sample", "pointwise", work, (("points", points), ("channels", channels))),)


@rule
def grid_sample_backward(
    points: Amount, channels: Amount, dimensions: int, mode: str = "bilinear", *, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Gradients of the input and of the points.

    Weights as forward. The input's: a multiply and an add a corner and channel; that of the points: the corner's value
    times dy, times d - 1 distances, and an add, for each of d coordinates; then each coordinate's scale.

    >>> grid_sample_backward(10, 3, 2)[0].work.flops_full  # 10·(18 + 2) + 30·(4·2 + 4·2·3)
    1160
    """
    corners = _SAMPLING[mode] ** dimensions
    coordinates = 0 if mode == "nearest" else corners * dimensions * (dimensions + 1)
    to_input = corners if mode == "nearest" else 2 * corners
    (forward,) = grid_sample(points, 0, dimensions, mode, element_bytes=element_bytes)
    slopes = 22 * dimensions if mode == "bicubic" else 0  # the derivatives of the cubic weights
    work = Work.of_flops(
        forward.work.flops_full
        + points * ((dimensions if coordinates else 0) + slopes + channels * (to_input + coordinates)),
        bytes_read=element_bytes * points * (dimensions + channels * (1 + corners)),
        bytes_written=element_bytes * points * (dimensions + channels * corners),
    )
    return (Piece("grid_sample_backward", "pointwise", work, (("points", points), ("channels", channels)), "input"),)


def _shape(outputs: Amount, neighbours: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("outputs", outputs), ("neighbours", neighbours))
