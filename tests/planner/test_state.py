from typing import get_args

import pytest

from torchledger.planner import PlanError, state_bytes
from torchledger.planner.state import GRADIENTS, OPTIMIZERS, PRECISIONS, optimizer_note
from torchledger.spec.recipe import OptimizerKind, Precision
from torchledger.units import format_number


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
            assert state.text.endswith(f"= {format_number(state.total, 4)} bytes per parameter")
            assert ("master" in state.text) == (state.master > 0)
            assert ("moments" in state.text) == (state.moments > 0)


def test_every_optimizer_of_a_recipe_has_its_state():
    """Averages in the precision's own format; an optimizer with its own format keeps it under any precision."""
    expected = {"adamw": 8, "sgd": 0, "sgd-momentum": 4, "lion": 4, "muon": 4, "adafactor": 0}
    assert {name: state_bytes("fp32", name).moments for name in expected} == expected
    assert {name: state_bytes("bf16-pure", name).moments for name in expected} == {
        name: num_bytes / 2 for name, num_bytes in expected.items()
    }
    eight_bit = 2 * (1 + 4 / 2048)  # two bytes and two FP32 scales for a block of 2,048
    assert state_bytes("fp32", "adamw-8bit").moments == state_bytes("bf16-pure", "adamw-8bit").moments == eight_bit
    assert set(get_args(OptimizerKind)) <= set(OPTIMIZERS)
    assert set(get_args(Precision)) == set(PRECISIONS)
    assert all(optimizer_note(name) for name in OPTIMIZERS)


def test_eight_bit_formats_keep_a_master_copy():
    """FP8 and FP4 are formats of matmuls: weights stay in BF16 with an FP32 master copy beside."""
    for precision in ("fp8", "mxfp8", "nvfp4"):
        assert state_bytes(precision).total == 2 + 2 + 4 + 8


@pytest.mark.parametrize(("gradient", "num_bytes"), GRADIENTS.items())
def test_gradients_may_be_kept_in_another_format(gradient, num_bytes):
    """Megatron-LM keeps FP32 gradients beside BF16 weights: 2 + 4 + 4 + 8 = 18 bytes."""
    state = state_bytes("bf16-master", gradient=gradient)
    assert state.gradient == num_bytes
    assert state.total == 2 + num_bytes + 4 + 8


def test_what_zero_spreads_first_stands_first():
    """Optimizer state and master copy, then gradients, then weights (arXiv:1910.02054, figure 1)."""
    assert state_bytes("bf16-master").on_a_chip == (4 + 8, 2, 2)


@pytest.mark.parametrize(
    ("words", "named"),
    [(("fp12", "adamw"), "bf16-pure"), (("fp32", "adagrad"), "adafactor"), (("fp32", "adamw", "int3"), "bf16")],
)
def test_unknown_names_list_the_known(words, named):
    """An unknown precision, optimizer or format of gradients is an error that lists what there is."""
    with pytest.raises(PlanError, match=named):
        state_bytes(*words)
