import pytest
import torch
from torch.nn import functional

N, C = 2, 3


def _inside(size, kernel, stride, padding, *, dilation=1, ceil=False):
    """Windows of one dimension as lists of the places they see."""
    span = dilation * (kernel - 1) + 1
    count = (size + 2 * padding - span + (stride - 1 if ceil else 0)) // stride + 1
    if ceil and (count - 1) * stride >= size + padding:
        count -= 1
    places = [[o * stride - padding + k * dilation for k in range(kernel)] for o in range(count)]
    return [[p for p in window if 0 <= p < size] for window in places]


@pytest.mark.parametrize(
    "geometry",
    [(3, 2, 1, 1, False), (2, 2, 0, 1, False), (3, 1, 1, 2, False), (3, 2, 0, 1, True)],
)
def test_a_largest_takes_a_compare_less_than_its_window_has(only, geometry):
    """Brute force over all windows of an 8 by 7 image."""
    kernel, stride, padding, dilation, ceil = geometry
    run = lambda: functional.max_pool2d(torch.zeros(N, C, 8, 7), *geometry)  # noqa: E731
    rows, columns = (_inside(size, kernel, stride, padding, dilation=dilation, ceil=ceil) for size in (8, 7))
    compares = sum(len(r) * len(c) - 1 for r in rows for c in columns)
    assert only(run).work.flops_full == N * C * compares


def test_averages_in_one_two_and_three_dimensions(only):
    """An output takes kernel - 1 adds and a multiply as well."""
    for dims, pool in ((1, functional.avg_pool1d), (2, functional.avg_pool2d), (3, functional.avg_pool3d)):
        line = only(lambda dims=dims, pool=pool: pool(torch.zeros(N, C, *[6] * dims), 2))
        assert line.work.flops_full == N * C * 3**dims * 2**dims


@pytest.mark.parametrize(("size", "outputs"), [(7, 3), (8, 4), (5, 1)])
def test_adaptive_windows(only, size, outputs):
    """From ⌊i·n/o⌋ to ⌈(i + 1)·n/o⌉."""
    widths = [-(-(i + 1) * size // outputs) - i * size // outputs for i in range(outputs)]
    image = torch.zeros(N, C, size, size)
    largest = only(lambda: functional.adaptive_max_pool2d(image, outputs)).work.flops_full
    assert largest == N * C * sum(a * b - 1 for a in widths for b in widths)
    if outputs > 1:  # to one value, it is a mean
        average = only(lambda: functional.adaptive_avg_pool2d(image, outputs)).work.flops_full
        assert average == N * C * sum(a * b for a in widths for b in widths)


def test_backward_of_both(backward):
    """An add a window to its largest; a multiply a window and an add an element of it."""
    image = torch.zeros(N, C, 8, 8, requires_grad=True)
    (largest,) = backward(lambda: functional.max_pool2d(image, 2))
    assert (largest.work.flops_full, largest.gradient_of) == (N * C * 16, "input")
    image = torch.zeros(N, C, 8, 8, requires_grad=True)
    (average,) = backward(lambda: functional.avg_pool2d(image, 2))
    assert average.work.flops_full == N * C * (16 + 64)


def test_backward_does_not_read_the_image(backward):
    """Gradients of 4 bytes and places of 8 are read; the image's gradient is written whole."""
    image = torch.zeros(N, C, 8, 8, requires_grad=True)
    (largest,) = backward(lambda: functional.max_pool2d(image, 2))
    assert largest.work.bytes_written == N * C * 64 * 4
    assert largest.work.bytes_read in {N * C * 16 * 8 + 4, N * C * 16 * (8 + 4)}  # an expanded gradient is one number


def test_windows_at_drawn_places_are_whole(lines):
    found = lines(lambda: functional.fractional_max_pool2d(torch.zeros(N, C, 9, 9), 2, output_size=4))
    assert next(line for line in found if line.op == "max_pool").work.flops_full == N * C * 16 * 3
