import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.planner import Holding, PlanError, state_bytes
from torchledger.planner.holding import activations, family

GB = 10**9


def test_eight_h100_hold_forty_billion_parameters():
    """FP32 with AdamW is 4 + 4 + 8 = 16 bytes a parameter: 8 times 80 GB hold 40B."""
    holding = Holding("nominal", 8, 80 * GB, state_bytes("fp32"))
    assert holding.state.total == 4 + 4 + (4 + 4)
    assert holding.params == 8 * 80 * GB // 16 == 40 * GB
    assert holding.arithmetic == "params = 8 chips · 80 GB / 16 bytes = 40B"


def test_the_driver_reports_other_bytes():
    """What the driver reports of an 80 GB card is 81,559 MiB: more parameters, and shown in GiB."""
    holding = Holding("reported by the driver", 8, 81559 * 2**20, state_bytes("fp32"))
    assert holding.params == 8 * 81559 * 2**20 // 16
    assert "79.6 GiB" in holding.arithmetic


@pytest.mark.parametrize(
    ("level", "gib"), [(0, 16 * 7.5), (1, 4 * 7.5 + 12 * 7.5 / 64), (2, 2 * 7.5 + 14 * 7.5 / 64), (3, 16 * 7.5 / 64)]
)
def test_zero_of_its_own_paper(level, gib):
    """7.5B parameters on 64 chips: 120, 31.4, 16.6 and 1.88 GB a chip (arXiv:1910.02054, figure 1)."""
    holding = Holding("nominal", 64, 80 * GB, state_bytes("bf16-master"), level)
    assert holding.bytes_needed(7.5e9) == pytest.approx(gib * GB)
    assert round(holding.bytes_needed(7.5e9) / GB, 1) == {0: 120, 1: 31.4, 2: 16.6, 3: 1.9}[level]


@given(
    level=st.integers(0, 3),
    chips=st.integers(1, 4096),
    precision=st.sampled_from(("fp32", "bf16-master", "bf16-pure")),
    kind=st.sampled_from(("none", "kept", "recomputed")),
)
def test_the_largest_model_fits_and_the_next_does_not(level, chips, precision, kind):
    """At every level and with every kind of activations, one parameter more than the answer is too many."""
    holding = Holding("nominal", chips, 80 * GB, state_bytes(precision), level, activations(kind, 8192))
    assert holding.bytes_needed(holding.params) <= holding.bytes_per_chip * (1 + 1e-12)
    assert holding.bytes_needed(holding.params + 2) > holding.bytes_per_chip * (1 - 1e-12)


@given(params=st.floats(1e8, 1e12), level=st.integers(0, 3), kind=st.sampled_from(("none", "recomputed")))
def test_the_fewest_chips_hold_the_model_and_one_less_does_not(params, level, kind):
    """The number of chips is the smallest that has room; nothing where what is not spread is larger than a chip."""
    held = activations(kind, 2048)
    one = Holding("nominal", 1, 80 * GB, state_bytes("bf16-master"), level, held)
    number = one.chips_needed(params)
    if number is None:
        assert Holding("nominal", 10**9, 80 * GB, one.state, level, held).share_needed(params) > 1 - 1e-6
        return
    assert Holding("nominal", number, 80 * GB, one.state, level, held).share_needed(params) <= 1 + 1e-9
    if number > 1:
        assert Holding("nominal", number - 1, 80 * GB, one.state, level, held).share_needed(params) > 1


def test_activations_of_a_transformer_by_its_parameters():
    """12·L·h² parameters and h = 128·L: 34·L·h bytes a token kept, or 2·L·h and 34·h for the layer that runs again."""
    L, h = 96, 128 * 96
    params = 12 * L * h * h
    assert activations("kept", 3).num_bytes(params) == pytest.approx(3 * 34 * L * h)
    assert activations("recomputed", 3).num_bytes(params) == pytest.approx(3 * (2 * L * h + 34 * h))
    assert activations("none", 3) is None


def test_activations_of_a_family_grow_with_depth_and_width():
    """Eight times the parameters are twice the depth and twice the width: four times the bytes a token."""
    held = family("m", 10**9, 1000.0, 2)
    assert held.num_bytes(1e9) == pytest.approx(2 * 1000)
    assert held.num_bytes(8e9) == pytest.approx(2 * 4000)
    assert "counted for m" in held.text


def test_what_is_spread_is_said_in_the_arithmetic():
    """Level 1 divides the optimizer's bytes alone, level 0 nothing; activations are taken off first."""
    state = state_bytes("bf16-master")
    assert Holding("nominal", 8, 80 * GB, state, 1).arithmetic == "params = 80 GB / (4 + 12/8 bytes) = 14.5B"
    assert Holding("nominal", 8, 80 * GB, state, 0).arithmetic == "params = 80 GB / 16 bytes = 5B"
    assert "of activations" in Holding("nominal", 8, 80 * GB, state, 3, activations("kept", 1)).arithmetic
    assert len({Holding("nominal", 8, 80 * GB, state, level).spread_text for level in range(4)}) == 4


def test_chips_are_counted_exactly():
    """1e25 parameters of 16 bytes on 80 GB are 2e15 chips and not one more, which floats would make of it."""
    assert Holding("nominal", 1, 80 * GB, state_bytes("fp32")).chips_needed(10**25) == 16 * 10**25 // (80 * GB)


def test_the_share_needed_is_bytes_over_bytes():
    """70B in FP32 on eight 80 GB cards needs 1.75 times what is there."""
    holding = Holding("nominal", 8, 80 * GB, state_bytes("fp32"))
    assert holding.share_needed(70e9) == 70e9 * 16 / (8 * 80e9) == 1.75


def test_a_level_is_one_of_four():
    """ZeRO has levels 0 to 3."""
    with pytest.raises(PlanError, match="0, 1, 2 or 3"):
        Holding("nominal", 8, 80 * GB, state_bytes("fp32"), 4)
