"""Which roof a line stands under, by arithmetic on a chip's data sheet."""

import pytest

from torchledger.ledger import Line, Work
from torchledger.machine import get
from torchledger.ops.roofline import balance, demand, intensity, roof

CHIP = get("h100")


def _product(flops, moved, number_format="bf16", times=1, kind="matmul"):
    return Line("m", "matmul", Work.of_flops(flops, bytes_read=moved), kind, number_format=number_format, times=times)


def test_the_balance_is_where_the_roofs_meet():
    """H100 SXM, bf16: 989.4 TFLOP/s over 3.35 TB/s."""
    turn = balance(CHIP, "bf16")
    assert turn == pytest.approx(CHIP.peak("bf16") / CHIP.memory_bandwidth)
    moved = 10**6
    assert roof(_product(int(moved * turn * 1.01), moved), CHIP).bound == "compute"
    assert roof(_product(int(moved * turn * 0.99), moved), CHIP).bound == "memory"


def test_seconds_are_those_of_the_longer_roof_and_of_all_times():
    line = _product(10**12, 10, times=3)
    assert roof(line, CHIP).seconds == pytest.approx(3 * 10**12 / CHIP.peak("bf16"))


def test_what_is_no_contraction_is_bound_by_its_bytes():
    """However many FLOPs it has: they are not the matrix units'."""
    line = _product(10**12, 10**6, kind="pointwise", number_format="fp32")
    assert demand(line) == (0, 10**6)
    assert roof(line, CHIP).bound == "memory"


@pytest.mark.parametrize(
    "line",
    [
        Line("m", "odd", Work(None, None, None, None, 8, 8), "unknown"),
        Line("m", "matmul", Work.of_flops(8, bytes_read=None), "matmul"),
        _product(8, 8, number_format="fp7"),
    ],
)
def test_what_is_not_known_stays_so(line):
    """An unknown operation, unknown bytes, a format that the chip has no peak for."""
    under = roof(line, CHIP)
    assert under.bound == "unknown"
    assert under.seconds is None


def test_intensity():
    assert intensity(Work.of_flops(12, bytes_read=2, bytes_written=1)) == 4
    assert intensity(Work.of_flops(12)) is None
    assert intensity(Work(None, None, None, 0, 1, 1)) is None
