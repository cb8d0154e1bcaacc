from dataclasses import replace

import pytest

from torchledger.machine import get, parse_cluster
from torchledger.planner import PlanError
from torchledger.planner.energy import carbon_kg, energy_j, power

H100 = get("h100")


def test_a_node_of_eight_h100_draws_what_was_measured_of_one():
    """8.4 kW for eight chips (Latif et al., arXiv:2412.08602): 700 W the chip, 350 W its share of the host."""
    drawn = power(H100)
    assert (drawn.chip_w, drawn.host_w) == (700, 8400 / 8 - 700)
    assert drawn.watts * 8 == 8400


def test_every_part_can_be_given():
    """Energy is (share of TDP + host) · PUE · chips · seconds."""
    joules = energy_j(parse_cluster("h100x1024"), 3600, tdp_share=0.9, host_w=200, pue=1.2)
    assert joules == pytest.approx((0.9 * 700 + 200) * 1.2 * 1024 * 3600)


def test_what_is_assumed_or_left_out_is_said():
    """An unknown host is not counted and says so; so is cooling; what is given is `as given`."""
    notes = " ".join(power(get("b200")).assumptions)
    assert "host is not counted" in notes
    assert "--host-power" in notes
    assert "--pue" in notes
    given = power(H100, tdp_share=0.9, host_w=100, pue=1.1).assumptions
    assert all("as given" in note for note in given)


def test_a_chip_of_unknown_power_has_unknown_energy():
    """Unknown is nothing, never zero; and carbon of unknown energy is unknown."""
    chip = replace(H100, tdp_w=None)
    assert power(chip) is None
    assert energy_j(replace(parse_cluster("h100x8"), chip=chip), 1.0) is None
    assert carbon_kg(None, 400) is None


def test_carbon_needs_the_grid():
    """A megawatt-hour at 400 g/kWh is 400 kg; without the grid's figure carbon is unknown."""
    assert carbon_kg(3.6e9, 400) == pytest.approx(1000 * 0.4)
    assert carbon_kg(3.6e9, None) is None


def test_mistakes_are_told_at_once():
    """A share, watts and a PUE that cannot be are one message that names the flags."""
    with pytest.raises(PlanError, match=r"(?s)--tdp-share.*--host-power.*--pue"):
        power(H100, tdp_share=0, host_w=-1, pue=0.5)
    with pytest.raises(PlanError, match="--carbon"):
        carbon_kg(1.0, -1)
