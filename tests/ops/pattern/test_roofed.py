import dataclasses

import pytest

from torchledger.machine import NoPeak, get
from torchledger.ops import copy, matmul
from torchledger.ops.pattern import roofed

H100 = get("h100")


def test_the_ridge_is_peak_over_bandwidth():
    """A product of n sides does 2n³ FLOPs on 6n² bytes of BF16, n/3 a byte: below the ridge memory sets the time."""
    ridge = H100.peak("bf16") / H100.memory_bandwidth
    small, large = (roofed(matmul(1, n, n, n, element_bytes=2), H100, "bf16") for n in (512, 2048))
    assert small.ridge == ridge
    assert 512 / 3 < ridge < 2048 / 3
    assert (small.bound, large.bound) == ("memory", "compute")
    assert small.seconds == 6 * 512**2 / H100.memory_bandwidth
    assert large.seconds == 2 * 2048**3 / H100.peak("bf16")


def test_kernels_run_one_after_the_other():
    """A copy before a product adds its seconds; what takes most of them is told."""
    moves = copy(10**9, element_bytes=2)
    multiplies = matmul(1, 2048, 2048, 2048, element_bytes=2)
    both = roofed((*moves, *multiplies), H100, "bf16")
    assert both.seconds == roofed(moves, H100, "bf16").seconds + roofed(multiplies, H100, "bf16").seconds
    assert both.bound == "memory"


def test_what_computes_nothing_has_no_ridge():
    assert roofed(copy(10), H100, "fp32").ridge is None


def test_a_format_that_a_chip_cannot_run_is_refused():
    with pytest.raises(NoPeak):
        roofed(matmul(1, 2, 2, 2), get("a100"), "fp8")


def test_an_unknown_bandwidth_is_unknown_and_not_zero():
    chip = dataclasses.replace(H100, memory_bandwidth=None)
    found = roofed(copy(10), chip, "fp32")
    assert (found.seconds, found.bound) == (None, "unknown")
