import pytest
import torch
from torch.nn import functional

from torchledger import ops


@pytest.mark.parametrize(
    ("mode", "dims", "flops"),
    [("nearest", 2, 0), ("linear", 1, 3), ("bilinear", 2, 3 * 3), ("trilinear", 3, 7 * 3), ("bicubic", 2, 5 * 7)],
)
def test_upsampling_by_mode(only, mode, dims, flops):
    """A weighted sum of k neighbours is 2k - 1, one dimension after the other."""
    line = only(lambda: functional.interpolate(torch.zeros(2, 3, *[4] * dims), scale_factor=2, mode=mode))
    assert line.work.flops_full == 2 * 3 * 8**dims * flops


@pytest.mark.parametrize(("mode", "flops"), [("nearest", 1), ("bilinear", 4 * 3), ("bicubic", 16 * 3)])
def test_backward_by_mode(backward, mode, flops):
    """Two weights and an add a neighbour."""
    image = torch.zeros(2, 3, 4, 4, requires_grad=True)
    (line,) = backward(lambda: functional.interpolate(image, scale_factor=2, mode=mode))
    assert line.work.flops_full == 2 * 3 * 64 * flops


@pytest.mark.parametrize(
    ("size", "outputs", "mode", "support"), [(12, 5, "bilinear", 1.0), (9, 4, "bicubic", 2.0), (4, 7, "bilinear", 1.0)]
)
def test_taps_of_an_antialiased_filter_are_those_that_torch_gives_weight(size, outputs, mode, support):
    """A single bright pixel shows which outputs see it; a tap at the filter's very edge weighs nothing."""
    seen = torch.zeros(outputs, size)
    for place in range(size):
        image = torch.zeros(1, 1, 1, size, dtype=torch.float64)
        image[..., place] = 1
        seen[:, place] = functional.interpolate(image, size=(1, outputs), mode=mode, antialias=True)[0, 0, 0] != 0
    taps = ops.antialiased_taps(size, outputs, support)
    weighted = [int(count) for count in seen.sum(1)]
    assert all(0 <= tap - count <= 2 for tap, count in zip(taps, weighted, strict=True)), (taps, weighted)


def test_antialiasing_runs_along_rows_then_columns(only):
    line = only(lambda: functional.interpolate(torch.zeros(2, 3, 12, 9), size=(4, 3), mode="bilinear", antialias=True))
    rows, columns = ops.antialiased_taps(12, 4, 1.0), ops.antialiased_taps(9, 3, 1.0)
    across, down = 12 * sum(2 * t - 1 for t in columns), 3 * sum(2 * t - 1 for t in rows)
    assert line.work.flops_full == 2 * 3 * (across + down)


def test_sampling_at_a_grid(only):
    """Of each point 7 a coordinate and a weight a corner; of each channel the sum of four."""
    line = only(lambda: functional.grid_sample(torch.zeros(2, 3, 8, 8), torch.zeros(2, 5, 5, 2), align_corners=False))
    assert line.work.flops_full == 2 * 25 * (2 * 7 + 4) + 2 * 25 * 3 * 7


def test_an_affine_grid_is_a_product(lines):
    """[points, 3] @ [3, 2] a sample."""
    found = lines(lambda: functional.affine_grid(torch.zeros(2, 2, 3), [2, 1, 4, 5], align_corners=False))
    assert sum(line.total.flops_full for line in found if line.kind == "matmul") == 2 * 2 * 20 * 3 * 2
