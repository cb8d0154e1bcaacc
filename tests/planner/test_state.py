import pytest

from torchledger.planner import Holding, PlanError, state_bytes
from torchledger.planner.state import OPTIMIZERS, PRECISIONS


def test_eight_h100_hold_forty_billion_parameters():
    """FP32 with AdamW is 4 + 4 + 8 = 16 bytes a parameter: 8 times 80 GB hold 40B."""
    holding = Holding("nominal", 8, 80 * 10**9, state_bytes("fp32"))
    assert holding.state.total == 4 + 4 + (4 + 4)
    assert holding.params == 8 * 80 * 10**9 // 16 == 40 * 10**9
    assert holding.arithmetic == "params = 8 chips · 80 GB / 16 bytes = 40B"


def test_the_driver_reports_other_bytes():
    """What the driver reports of an 80 GB card is 81,559 MiB: more parameters, and shown in GiB."""
    holding = Holding("reported by the driver", 8, 81559 * 2**20, state_bytes("fp32"))
    assert holding.params == 8 * 81559 * 2**20 // 16
    assert "79.6 GiB" in holding.arithmetic


@pytest.mark.parametrize(
    ("precision", "expected"),
    [
        ("fp32", 4 + 4 + 8),
        ("bf16", 4 + 4 + 8),
        ("fp16", 4 + 4 + 8),
        ("bf16-master", 2 + 2 + 4 + 8),
        ("bf16-moments", 2 + 2 + 8),
        ("bf16-pure", 2 + 2 + 4),
    ],
)
def test_bytes_of_each_precision(precision, expected):
    """AdamW's state under each precision, part by part."""
    assert state_bytes(precision).total == expected


def test_sgd_keeps_no_moments_and_momentum_one():
    """SGD drops both moments, momentum keeps one."""
    assert state_bytes("fp32", "sgd").total == 4 + 4
    assert state_bytes("fp32", "sgd-momentum").total == 4 + 4 + 4


def test_the_sum_is_written_out():
    """Every part that is not zero stands in the text."""
    for precision in PRECISIONS:
        for optimizer in OPTIMIZERS:
            state = state_bytes(precision, optimizer)
            assert state.text.endswith(f"= {state.total} bytes per parameter")
            assert ("master" in state.text) == (state.master > 0)
            assert ("moments" in state.text) == (state.moments > 0)


def test_the_share_needed_is_bytes_over_bytes():
    """70B in FP32 on eight 80 GB cards needs 1.75 times what is there."""
    holding = Holding("nominal", 8, 80 * 10**9, state_bytes("fp32"))
    assert holding.share_needed(70e9) == 70e9 * 16 / (8 * 80e9) == 1.75


@pytest.mark.parametrize(("precision", "optimizer", "named"), [("fp12", "adamw", "bf16-pure"), ("fp32", "lion", "sgd")])
def test_unknown_names_list_the_known(precision, optimizer, named):
    """An unknown precision or optimizer is an error that lists what there is."""
    with pytest.raises(PlanError, match=named):
        state_bytes(precision, optimizer)
