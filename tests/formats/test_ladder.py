import math
from fractions import Fraction

import pytest

from torchledger import formats
from torchledger.formats import FormatError


def test_around_a_small_gradient():
    """1e-8 in BF16: three below and three above the nearest, 2^-34 apart, the nearest 1.0012e-8."""
    rungs = formats.ladder(Fraction(1, 10**8), "bf16", 3)
    assert [rung.steps for rung in rungs] == [-3, -2, -1, 0, 1, 2, 3]
    nearest = (1 + 44 / 128) * 2.0**-27
    assert [rung.value for rung in rungs] == [nearest + k * 2.0**-34 for k in range(-3, 4)]
    assert {rung.gap for rung in rungs} == {2.0**-34}
    assert rungs[3].distance == pytest.approx(nearest - 1e-8)


def test_gaps_double_at_a_power_of_two():
    """Below 1 FP16's numbers are 2^-11 apart, from 1 on 2^-10."""
    assert [rung.gap for rung in formats.ladder(1, "fp16", 1)] == [2.0**-11, 2.0**-10, 2.0**-10]


def test_there_is_one_zero():
    """Through zero, in steps of the smallest subnormal number."""
    assert [rung.value for rung in formats.ladder(0.1, "fp4", 2)] == [-1, -0.5, 0, 0.5, 1]
    assert [rung.value for rung in formats.ladder(-0.1, "int8", 1)] == [-1, 0, 1]


def test_the_ends():
    """Infinity is the last rung where there is one; the ladder is shorter there."""
    rungs = formats.ladder(65504, "fp16", 2)
    assert [rung.value for rung in rungs] == [65504 - 64, 65504 - 32, 65504, math.inf]
    assert [rung.gap for rung in rungs] == [32, 32, None, None]
    assert rungs[-1].distance is None
    assert [rung.value for rung in formats.ladder(100, "fp4", 1)] == [4, 6]
    assert [rung.value for rung in formats.ladder(1e9, "int8", 1)] == [126, 127]
    assert [rung.value for rung in formats.ladder(-1e9, "int8", 1)] == [-128, -127]
    assert [rung.value for rung in formats.ladder(1e9, "fp16", 1)] == [65504, math.inf]
    assert [rung.value for rung in formats.ladder(-1e9, "fp16", 1)] == [-math.inf, -65504]
    assert [rung.value for rung in formats.ladder(0, "e8m0", 1)] == [2.0**-127, 2.0**-126]


def test_numbers_that_no_float_holds():
    """10^400 is far from every number."""
    rungs = formats.ladder(10**400, "fp64", 1)
    assert [rung.value for rung in rungs] == [formats.get("fp64").max, math.inf]
    assert rungs[0].distance == -math.inf


@pytest.mark.parametrize(
    ("value", "rungs", "message"),
    [(math.inf, 1, "has no neighbours"), (math.nan, 1, "has no neighbours"), (1, -1, "at least 0 rungs")],
)
def test_what_has_no_ladder(value, rungs, message):
    """Infinity, NaN, and less than nothing."""
    with pytest.raises(FormatError, match=message):
        formats.ladder(value, "fp16", rungs)
