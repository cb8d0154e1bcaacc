import pytest

from torchledger.machine import get
from torchledger.planner import solve, state_bytes
from torchledger.planner.run import run_of
from torchledger.planner.terms import RunTerms

H100 = get("h100")
NAPKIN = solve(params=70e9, tokens=15e12, num_chips=1024, mfu=0.5, peak_flops_per_s=989.4e12)


def test_energy_is_power_times_chip_hours():
    """(700 + 350) W of 1,024 chips for 143.9 days."""
    run = run_of(NAPKIN, H100, state_bytes("bf16"), RunTerms())
    assert run.energy_j == pytest.approx((700 + 350) * NAPKIN.chip_hours * 3600)
    assert run.carbon_kg is None


def test_carbon_follows_where_the_grid_is_given():
    """400 g for each of so many kWh."""
    run = run_of(NAPKIN, H100, state_bytes("bf16"), RunTerms(carbon_g_per_kwh=400, host_w=0, pue=1.1))
    assert run.carbon_kg == pytest.approx(700 * 1.1 * NAPKIN.chip_hours / 1000 * 0.4)


def test_a_checkpoint_is_the_state_without_gradients():
    """70B with 2 + 4 + 8 bytes: the gradient of bf16-master is not saved."""
    run = run_of(NAPKIN, H100, state_bytes("bf16-master"), RunTerms())
    assert any("a checkpoint of 980 GB" in each for each in run.assumptions)
    assert run.wall_days > NAPKIN.days
    assert run.losses.goodput == pytest.approx(NAPKIN.days / run.wall_days)


def test_a_budget_whose_chips_are_open_has_energy_and_no_losses():
    """Chip-hours give the energy; how often something fails depends on how many chips there are."""
    budget = solve(money=1e6, price_per_chip_hour=2.0, tokens=1e12, mfu=0.5, peak_flops_per_s=1e15)
    run = run_of(budget, H100, state_bytes("bf16"), RunTerms())
    assert run.energy_j == pytest.approx(1050 * 500_000 * 3600)
    assert run.losses is None
    assert run.wall_days is None
