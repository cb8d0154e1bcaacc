import pytest

from torchledger import ops


def _weighted(values, weights, counted):
    return counted.sum([value * weight for value, weight in zip(values, weights, strict=True)])


@pytest.mark.parametrize(("dimensions", "taps"), [(1, 2), (2, 2), (3, 2), (2, 4)])
def test_neighbours_are_summed_one_dimension_after_the_other(counted, dimensions, taps):
    """Brute force: sums of `taps` weighted values along the innermost dimension, then along the next."""

    def along(dimension):
        if dimension == 0:
            return counted.number()
        return _weighted([along(dimension - 1) for _ in range(taps)], [0.3] * taps, counted)

    along(dimensions)
    assert ops.interpolate(1, dimensions, taps)[0].work.flops_full == counted.taken()[0]


def test_nearest_is_a_lookup():
    piece = ops.interpolate(10, 2, 1)[0]
    assert (piece.kind, piece.work.flops_full) == ("gather", 0)
    assert ops.interpolate_backward(10, 2, 1)[0].work.flops_full == 10


@pytest.mark.parametrize(("dimensions", "taps"), [(1, 2), (2, 2), (3, 2), (2, 4)])
def test_backward_adds_to_every_neighbour(counted, dimensions, taps):
    """Dy times a weight a dimension, and an add."""
    for _neighbour in range(taps**dimensions):
        gradient = counted.number()
        for _dimension in range(dimensions):
            gradient = gradient * 0.3
        _ = counted.number() + gradient
    assert ops.interpolate_backward(1, dimensions, taps)[0].work.flops_full == counted.taken()[0]


def test_antialiasing_widens_with_the_scale_it_shrinks_by():
    """A linear filter from 12 to 4 reaches 3 to each side, from 4 to 12 one."""
    assert max(ops.antialiased_taps(12, 4, 1.0)) == 6
    assert max(ops.antialiased_taps(4, 12, 1.0)) == 2
    taps = ops.antialiased_taps(12, 4, 1.0)
    work = ops.interpolate_antialiased(2, 12, (4, 4), (sum(taps), sum(taps)))[0].work
    assert work.flops_full == 2 * (12 * sum(2 * t - 1 for t in taps) + 4 * sum(2 * t - 1 for t in taps))


def test_a_sampled_point_counts_what_its_formula_does(counted):
    """Two coordinates to pixels, floors, distances, corner weights; a channel the weighted sum of four corners."""
    weights = []
    for _axis in range(2):
        pixel = ((counted.number(0.2) + 1.0) * 8.0 - 1.0) * 0.5
        floor = pixel * 1.0  # rounding down
        near = pixel - floor
        weights.append((1.0 - near, near))
    corners = [weights[0][i] * weights[1][j] for i in (0, 1) for j in (0, 1)]
    for _channel in range(3):
        _ = _weighted(counted.numbers(4), corners, counted)
    assert ops.grid_sample(1, 3, 2)[0].work.flops_full == counted.taken()[0]


def test_nearest_samples_are_copied_and_cubic_ones_take_sixteen():
    assert ops.grid_sample(10, 3, 2, "nearest")[0].work.flops_full == 10 * 2 * 5
    a_channel = (
        ops.grid_sample(1, 2, 2, "bicubic")[0].work.flops_full - ops.grid_sample(1, 1, 2, "bicubic")[0].work.flops_full
    )
    assert a_channel == 7 * 5
    assert ops.grid_sample_backward(10, 3, 2)[0].work.flops_full == 10 * (18 + 2) + 30 * (8 + 24)
