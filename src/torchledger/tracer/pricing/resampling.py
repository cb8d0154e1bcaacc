"""Prices of interpolation, and of sampling at the points of a grid."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices, size_of

#: torch's numbers of the modes of `grid_sample`.
_MODES = ("bilinear", "nearest", "bicubic")
#: Name -> dimensions, and neighbours along each.
_FILTERS = {
    **{f"nearest{dims}d": (dims, 1) for dims in (1, 2, 3)},
    **{f"nearest_exact{dims}d": (dims, 1) for dims in (1, 2, 3)},
    "linear1d": (1, 2),
    "bilinear2d": (2, 2),
    "trilinear3d": (3, 2),
    "bicubic2d": (2, 4),
}
#: Antialiased filter -> half its width at scale 1.
_SUPPORTS = {"bilinear2d": 1.0, "bicubic2d": 2.0, "lanczos2d": 3.0}


@price_of("grid_sampler_2d", "grid_sampler_3d", "cudnn_grid_sampler", "_grid_sampler_2d_cpu_fallback")
def grid_sample(seen: Seen) -> tuple[Piece, ...]:
    """Values at the points of a grid."""
    return ops.grid_sample(*_points(seen))


@price_of("grid_sampler_2d_backward", "grid_sampler_3d_backward", "cudnn_grid_sampler_backward")
@price_of("_grid_sampler_2d_cpu_fallback_backward")
def grid_sample_backward(seen: Seen) -> tuple[Piece, ...]:
    """Gradients of the input and of the grid."""
    return ops.grid_sample_backward(*_points(seen))


@price_of("affine_grid_generator", "cudnn_affine_grid_generator")
def affine_grid(seen: Seen) -> tuple[Piece, ...]:
    """Every point of a grid, and 1, times a matrix a sample: a batch of products [points, d + 1] @ [d + 1, d]."""
    theta, points = seen.tensor("theta"), seen.num_results
    batch, rows, columns = theta.shape
    return ops.matmul(batch, points // max(batch * rows, 1), rows, columns, element_bytes=theta.dtype.itemsize)


@price_of("cudnn_affine_grid_generator_backward")
def affine_grid_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradient of the matrices: the same multiply-adds."""
    batch, rows, columns = seen.results[0].shape
    points = seen.tensor("grad").num_elements // max(batch * rows, 1)
    return ops.matmul(batch, rows, columns, points)


def _points(seen: Seen) -> tuple[int, int, int, str]:
    grid = seen.tensor("grid")
    image = seen.optional("input") or seen.tensor("self")
    dimensions = grid.shape[-1]
    mode = _MODES[seen.arguments.get("interpolation_mode", 0)]
    return grid.num_elements // max(dimensions, 1), image.shape[1], dimensions, mode


def _interpolation(dimensions: int, taps: int) -> Price:
    return lambda seen: ops.interpolate(seen.num_results, dimensions, taps)


def _interpolation_backward(dimensions: int, taps: int) -> Price:
    return lambda seen: ops.interpolate_backward(seen.tensor("grad_output").num_elements, dimensions, taps)


def _antialiased(support: float) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        image = seen.optional("input") or seen.tensor("self")
        inputs, outputs = image.shape, seen.results[0].shape
        taps = _taps(seen, inputs, outputs, support)
        return ops.interpolate_antialiased(size_of(inputs[:2]), inputs[2], (outputs[2], outputs[3]), taps)

    return price


def _antialiased_backward(support: float) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        inputs, outputs = seen.results[0].shape, seen.tensor("grad_output").shape
        taps = _taps(seen, inputs, outputs, support)
        return ops.interpolate_antialiased_backward(size_of(inputs[:2]), (outputs[2], outputs[3]), taps)

    return price


def _taps(seen: Seen, inputs: tuple[int, ...], outputs: tuple[int, ...], support: float) -> tuple[int, int]:
    """Taps of all output rows together, and of all output columns."""
    corners = bool(seen.arguments["align_corners"])
    rows, columns = (
        sum(ops.antialiased_taps(inputs[dim], outputs[dim], support, align_corners=corners)) for dim in (2, 3)
    )
    return rows, columns


for _name, _sizes in _FILTERS.items():
    for _op in (f"upsample_{_name}", f"_upsample_{_name}"):
        prices[_op] = _interpolation(*_sizes)
        prices[f"{_op}_backward"] = _interpolation_backward(*_sizes)
for _name, _support in _SUPPORTS.items():
    prices[f"_upsample_{_name}_aa"] = _antialiased(_support)
    prices[f"_upsample_{_name}_aa_backward"] = _antialiased_backward(_support)
