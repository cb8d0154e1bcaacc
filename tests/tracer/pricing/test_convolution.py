"""Convolutions as torch calls them, against multiply-adds that are counted in the convolution's own Jacobian."""

import itertools

import pytest
import torch
from torch.nn import functional

from torchledger.tracer import Recorder

DIMENSIONS = {1: (5,), 2: (5, 4), 3: (3, 4, 3)}
PLAIN = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
TRANSPOSED = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}


def _lines(run):
    with Recorder() as recorder:
        run()
    return [line for line in recorder.trace().ledger if line.kind == "convolution"]


def _multiply_adds(function, x, weight):
    """Pairs of an input and a weight that meet in an output: y is linear in each, so d²y/dx dW is 1 for each pair.

    With x all ones, dy/dW sums over the pairs of each weight; summed over weights and outputs it is all pairs.
    """
    y = function(torch.ones_like(x), torch.ones_like(weight))
    return int(y.sum())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("dimensions", [1, 2, 3])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_every_convolution(dimensions, groups, transposed, stride, dilation):
    """Without padding every tap meets an input, so the count is that of the pairs, in all three directions."""
    spatial, taps = DIMENSIONS[dimensions], (2,) * dimensions
    x = torch.zeros(2, 4, *spatial, requires_grad=True)
    weight = torch.zeros(4, 8 // groups if transposed else 4 // groups, *taps, requires_grad=True)
    if not transposed:
        weight = torch.zeros(8, 4 // groups, *taps, requires_grad=True)
    convolution = (TRANSPOSED if transposed else PLAIN)[dimensions]
    options = {"groups": groups, "stride": stride, "dilation": dilation}
    run = lambda: convolution(x, weight, **options).sum().backward()  # noqa: E731
    pairs = _multiply_adds(lambda x, w: convolution(x, w, **options), x.detach(), weight.detach())
    lines = _lines(run)
    assert [(line.phase, line.gradient_of, line.work.flops_full) for line in lines] == [
        ("forward", "none", 2 * pairs),
        ("backward", "input", 2 * pairs),
        ("backward", "weight", 2 * pairs),
    ]


@pytest.mark.parametrize(("of_input", "of_weight", "of_bias"), [*itertools.product((True, False), repeat=3)])
def test_the_gradients_that_are_asked_for(of_input, of_weight, of_bias):
    """Each of the three is there when its tensor needs it, and only then."""
    if not (of_input or of_weight or of_bias):
        return
    x = torch.zeros(2, 4, 6, 6, requires_grad=of_input)
    weight, bias = torch.zeros(8, 4, 3, 3, requires_grad=of_weight), torch.zeros(8, requires_grad=of_bias)
    with Recorder() as recorder:
        functional.conv2d(x, weight, bias, padding=1).sum().backward()
    backward = recorder.trace().ledger.where(phase="backward")
    found = [(line.op, line.gradient_of) for line in backward if "convolution" in line.op or "bias" in line.op]
    expected = [
        ("convolution_input_gradient", "input", of_input),
        ("convolution_weight_gradient", "weight", of_weight),
        ("bias_gradient", "weight", of_bias),
    ]
    assert found == [(op, of) for op, of, asked in expected if asked]


def test_padding_counts_as_the_kernel_runs_it():
    """Taps on padding are multiplied too: 36 positions of nine taps."""
    (line,) = _lines(lambda: functional.conv2d(torch.zeros(1, 1, 6, 6), torch.zeros(1, 1, 3, 3), padding="same"))
    assert line.work.flops_full == 2 * 36 * 9


def test_one_image_without_a_batch():
    (line,) = _lines(lambda: functional.conv2d(torch.zeros(4, 6, 6), torch.zeros(8, 4, 3, 3)))
    assert line.work.flops_full == 2 * 16 * 9 * 4 * 8


def test_a_convolution_along_time():
    """Channels last, a kernel [taps, inputs, outputs]."""
    run = lambda: torch.conv_tbc(torch.zeros(6, 2, 4), torch.zeros(3, 4, 8), torch.zeros(8), 0)  # noqa: E731
    (line,) = _lines(run)
    assert line.work.flops_full == 2 * 2 * 4 * 3 * 4 * 8
