import pytest

from torchledger.ledger import Ledger, Line, Work
from torchledger.machine import get
from torchledger.machine.profile import MachineProfile
from torchledger.planner import Rates, hfu, mfu, step_time
from torchledger.planner.rates import at

RATES = Rates({"fp32": ((1e6, 1e9), (1e9, 1e10))}, ((1e6, 1e9),), operation_s=1e-3, transcendental_s=1e-6)


def matmul(flops, moved=0, **place):
    work = Work.of_flops(flops, bytes_read=moved)
    return Line("mlp.up", "matmul", work, "matmul", **place)


def test_the_longer_of_computing_and_moving_counts():
    """A line takes the longer of its two times, and the start of the operation."""
    compute, memory = step_time(Ledger((matmul(1e9, 8), matmul(1e6, 5e9))), RATES).lines
    assert compute.seconds == pytest.approx(1e9 / 1e10 + 1e-3)
    assert compute.bound == "compute"
    assert memory.seconds == pytest.approx(5e9 / 1e9 + 1e-3)
    assert memory.bound == "memory"


def test_times_multiply():
    """A line that runs n times takes n times as long."""
    once = step_time(Ledger((matmul(1e7, 8),)), RATES).step_s
    assert step_time(Ledger((matmul(1e7, 8, times=7),)), RATES).step_s == pytest.approx(7 * once)


def test_parts_sum_to_the_step():
    """By phase, by kind and by bound are the same seconds cut differently."""
    lines = (
        matmul(1e9, 8),
        matmul(2e9, 8, phase="backward", gradient_of="weight"),
        Line("norm", "rms_norm", Work(bytes_read=10**7, transcendentals=100), "normalization"),
    )
    time = step_time(Ledger(lines), RATES)
    for parts in (time.by_phase, time.by_kind, time.by_bound):
        assert sum(parts.values()) == pytest.approx(time.step_s)
    assert set(time.by_phase) == {"forward", "backward"}


def test_small_matmuls_are_slower():
    """The rate is read off the curve at the size of one matmul, not of all its times."""
    assert at(RATES.flops_per_s["fp32"], 1e6) == 1e9
    assert at(RATES.flops_per_s["fp32"], 1e3) == 1e9
    assert at(RATES.flops_per_s["fp32"], 1e12) == 1e10
    assert 1e9 < at(RATES.flops_per_s["fp32"], 1e8) < 1e10


def test_a_part_of_another_kernel_starts_nothing():
    """The softmax inside a fused attention moves no bytes of its own: no launch is counted for it."""
    inside = Line("core", "softmax", Work(transcendentals=1000), "reduction")
    assert step_time(Ledger((inside,)), RATES).step_s == pytest.approx(1000 * 1e-6)


def test_a_kernel_that_was_timed_takes_its_own_seconds():
    """3 times 0.5 s, wherever the line stands; a line of other sizes keeps its roofline, and the answer names both."""
    plain = step_time(Ledger((matmul(2e9, 8),)), RATES).step_s
    ledger = Ledger((matmul(1e9, 8, times=3, phase="backward"), matmul(2e9, 8)))
    time = step_time(ledger, RATES, timed=[(Line("", "matmul", Work.of_flops(1e9, bytes_read=8), "matmul"), 0.5)])
    assert time.step_s == pytest.approx(3 * 0.5 + plain)
    assert time.by_bound["kernel"] == 3 * 0.5
    assert time.assumptions[:2] == (
        "kernels one after the other, each timed by itself on zeros that no cache held",
        "roofline, the longer of computing and moving bytes, for matmul",
    )
    assert time.by_kernels is (plain < 3 * 0.5)
    assert not step_time(ledger, RATES).by_kernels


@pytest.mark.parametrize(
    "line",
    [
        Line("a", "mystery", Work(), "unknown"),
        matmul(1e9, number_format="fp8"),
        Line("a", "copy", Work(bytes_read=None), "copy"),
    ],
)
def test_an_unknown_is_named_and_never_zero(line):
    """A line without work or without a rate has no time, and the answer lists it."""
    time = step_time(Ledger((line, matmul(1e9))), RATES)
    assert time.unknown == (line,)
    assert time.lines[0].seconds is None


def test_utilisation_counts_recompute_only_as_hardware_flops():
    """MFU leaves recomputed FLOPs out, HFU has them in."""
    ledger = Ledger((matmul(3e9), matmul(1e9, phase="recompute")))
    assert mfu(ledger, 2.0, 1e10) == 3e9 / (2.0 * 1e10)
    assert hfu(ledger, 2.0, 1e10) == 4e9 / (2.0 * 1e10)


def test_utilisation_of_an_incomplete_ledger_is_unknown():
    """Without the FLOPs of every contraction there is no MFU."""
    assert mfu(Ledger((Line("a", "matmul", Work(flops_full=None), "matmul"),)), 1.0, 1e10) is None


def test_a_profile_becomes_rates():
    """Measured points are the curves."""
    profile = MachineProfile(
        "cpu", 2, "2.13", "2026", {"fp32": ((2, 1e9), (4, 2e9))}, ((8, 4e10), (64, 1e10)), 3e10, 1e-6, 1e-9
    )
    rates = Rates.measured(profile)
    assert at(rates.flops_per_s["fp32"], 4) == 2e9
    assert at(rates.bytes_per_s, 1) == 4e10
    assert at(rates.bytes_per_s, 2**40) == 1e10
    assert rates.in_place_bytes_per_s == 3e10
    assert rates.operation_s == 1e-6
    assert "2 threads" in rates.source


def test_an_optimizer_works_in_place():
    """An optimizer's bytes go at the in-place rate, those of other lines at the curve's."""
    rates = Rates({}, ((1.0, 1e9),), in_place_bytes_per_s=4e9)
    work = Work(bytes_read=3, bytes_written=1)
    ledger = Ledger((Line("", "adamw", work, "optimizer", "optimizer"), Line("a", "add", work, "pointwise")))
    assert [each.seconds for each in step_time(ledger, rates).lines] == [4 / 4e9, 4 / 1e9]


def test_a_data_sheet_becomes_rates():
    """Without a measurement the data sheet's peaks hold at every size."""
    chip = get("h100")
    rates = Rates.data_sheet(chip)
    assert at(rates.flops_per_s["bf16"], 10) == chip.peak("bf16")
    assert at(rates.bytes_per_s, 10) == chip.memory_bandwidth
    assert "lower bound" in rates.source
