import cmath
from math import log2

import pytest

from torchledger import ops


def _transform(values, counts):
    """Cooley and Tukey's recursion, every complex multiply (6) and add (2) counted."""
    if len(values) == 1:
        return values
    even, odd = _transform(values[::2], counts), _transform(values[1::2], counts)
    half = len(values) // 2
    turned = [odd[k] * cmath.exp(-2j * cmath.pi * k / len(values)) for k in range(half)]
    counts.append(half * (6 + 2 + 2))
    return [e + t for e, t in zip(even, turned, strict=True)] + [e - t for e, t in zip(even, turned, strict=True)]


@pytest.mark.parametrize("points", [2, 8, 64])
def test_a_transform_is_what_the_recursion_counts(points):
    counts = []
    result = _transform([complex(i) for i in range(points)], counts)
    assert abs(result[0] - sum(range(points))) < 1e-6
    assert ops.fourier_transform(3, points)[0].work.flops_full == 3 * sum(counts)


def test_a_real_side_is_half_of_it():
    assert ops.fourier_transform(1, 1024, real=True)[0].work.flops_full == 5 * 1024 * 10 // 2


def test_other_sizes_follow_the_logarithm_and_a_scale_is_two_multiplies():
    assert ops.fourier_transform(1, 100)[0].work.flops_full == round(5 * 100 * log2(100))
    scaled, plain = (ops.fourier_transform(1, 64, scaled=which)[0].work.flops_full for which in (True, False))
    assert scaled - plain == 2 * 64


def test_it_is_a_kind_of_its_own():
    assert ops.fourier_transform(1, 8)[0].kind == "fft"
