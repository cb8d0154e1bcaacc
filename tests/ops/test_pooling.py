import pytest

from torchledger import ops

_GEOMETRIES = [(7, 3, 2, 1, 1), (7, 3, 2, 0, 1), (8, 2, 2, 0, 1), (9, 3, 1, 1, 2), (5, 4, 3, 2, 1), (6, 5, 1, 2, 1)]


def _outputs(size, kernel, stride, padding, dilation):
    return (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1


@pytest.mark.parametrize(("size", "kernel", "stride", "padding", "dilation"), _GEOMETRIES)
def test_windows_are_counted_as_far_as_they_lie_inside(size, kernel, stride, padding, dilation):
    outputs = _outputs(size, kernel, stride, padding, dilation)
    inside = sum(
        0 <= output * stride - padding + tap * dilation < size for output in range(outputs) for tap in range(kernel)
    )
    assert ops.windows(size, outputs, kernel, stride=stride, padding=padding, dilation=dilation) == inside


@pytest.mark.parametrize(("size", "outputs"), [(7, 3), (7, 7), (3, 5), (8, 2), (10, 4)])
def test_adaptive_windows_run_from_floor_to_ceiling(size, outputs):
    import math

    widths = [math.ceil((i + 1) * size / outputs) - math.floor(i * size / outputs) for i in range(outputs)]
    assert ops.adaptive_windows(size, outputs) == sum(widths)


def test_a_window_takes_one_compare_less_than_it_has_elements(counted):
    """3 by 3 windows over 5 by 5 with a border of 1, brute force."""
    image = [counted.numbers(5) for _ in range(5)]
    for row in range(5):
        for column in range(5):
            inside = [
                image[row + i][column + j]
                for i in (-1, 0, 1)
                for j in (-1, 0, 1)
                if 0 <= row + i < 5 and 0 <= column + j < 5
            ]
            largest = inside[0]
            for value in inside[1:]:
                largest = max(largest, value)
    elements = ops.windows(5, 5, 3, padding=1)
    assert ops.max_pool(25, elements * elements)[0].work.flops_full == counted.taken()[0]


def test_an_average_adds_and_multiplies_once(counted):
    """2 by 2 windows: three adds and a multiply."""
    for _window in range(4):
        _ = counted.sum(counted.numbers(4)) * 0.25
    assert ops.average_pool(4, 16)[0].work.flops_full == counted.taken()[0]


def test_backward_of_an_average_divides_once_and_adds_to_each():
    assert ops.average_pool_backward(3 * 2 * 2, 3 * 4 * 4)[0].work.flops_full == 3 * (2 * 2 + 4 * 4)


def test_backward_of_a_largest_adds_once_a_window():
    piece = ops.max_pool_backward(12, 48, element_bytes=2)[0]
    assert (piece.work.flops_full, piece.work.bytes_read, piece.work.bytes_written) == (12, 12 * (2 + 8), 48 * 2)
