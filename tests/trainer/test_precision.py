import contextlib

import pytest
import torch

from torchledger.trainer.precision import (
    PrecisionError,
    autocast,
    best_time,
    best_times,
    require_units,
    tensor_float_32,
)

CPU = torch.device("cpu")


def test_fp16_on_a_cpu_is_refused_with_the_reason():
    """fp16 on a CPU is refused, and the message says why and what to use."""
    with pytest.raises(PrecisionError, match=r"many times slower than its fp32 ones; use bf16 or fp32"):
        require_units("fp16", CPU)
    with pytest.raises(PrecisionError, match="loss scaling"):
        require_units("fp16", torch.device("mps"))


def test_tf32_is_refused_where_no_unit_runs_it():
    """A CPU has no TF32: the same run in fp32 would be told as something else."""
    with pytest.raises(PrecisionError, match="CUDA GPUs from Ampere on"):
        require_units("tf32", CPU)


def test_fp8_is_refused_where_no_unit_runs_it(monkeypatch):
    """An A100 (8.0) has no FP8 units and an H100 (9.0) has; AMD's have other FP8 formats; MPS has none."""
    cuda = torch.device("cuda")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (8, 0))
    with pytest.raises(PrecisionError, match=r"from compute capability 8\.9 on .*this one has 8\.0: use bf16"):
        require_units("fp8", cuda)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    require_units("fp8", cuda)
    with pytest.raises(PrecisionError, match="mps has none"):
        require_units("fp8", torch.device("mps"))
    monkeypatch.setattr("torch.version.hip", "6.4")
    with pytest.raises(PrecisionError, match="ROCm has none"):
        require_units("fp8", cuda)


@pytest.mark.parametrize("asked", ["mxfp8", "nvfp4", "fp16-master"])
def test_what_only_the_planner_knows_is_refused_by_name(asked):
    """A format that no code here runs is not taken for another."""
    with pytest.raises(PrecisionError, match=asked):
        autocast(CPU, asked)


def test_tf32_is_a_switch_that_is_put_back():
    """FP32 products may run in TF32 inside, and run in FP32 again afterwards, also after an error."""
    with contextlib.suppress(ZeroDivisionError), tensor_float_32():
        assert torch.get_float32_matmul_precision() == "high"
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == "highest"


def test_autocast_runs_matmuls_in_the_format():
    """bf16 casts matmuls and leaves parameters alone; fp32 does nothing."""
    layer = torch.nn.Linear(4, 4)
    for precision, dtype in (("bf16", torch.bfloat16), ("fp32", torch.float32)):
        with autocast(CPU, precision):
            assert layer(torch.zeros(2, 4)).dtype == dtype
    assert layer.weight.dtype == torch.float32


def test_best_time_runs_at_least_three_times():
    """One run warms up and two are measured, however short the budget."""
    runs = []
    best_time(lambda: runs.append(1), 0.0)
    assert len(runs) == 3


def test_times_in_turn_are_each_ones_own():
    """All warm up first, then run in turn, two times at least; the times stand in the order of the runs."""
    runs = []
    short_s, long_s = best_times([lambda: runs.append(1), lambda: runs.append(sum(range(300_000)))], 0.0)
    assert [each == 1 for each in runs] == [True, False] * 3
    assert short_s < long_s
