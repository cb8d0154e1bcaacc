import contextlib

import pytest
import torch

from torchledger.trainer.precision import PrecisionError, autocast, best_time, choose_precision, tensor_float_32

CPU = torch.device("cpu")
SIZES = {"tokens": 64, "hidden": 32, "inner": 48}


def test_fp16_on_a_cpu_is_refused_with_the_reason():
    """fp16 on a CPU is refused, and the message says why and what to use."""
    with pytest.raises(PrecisionError, match=r"many times slower than its fp32 ones; use bf16 or fp32"):
        choose_precision("fp16", CPU, **SIZES)
    with pytest.raises(PrecisionError, match="loss scaling"):
        choose_precision("fp16", torch.device("mps"), **SIZES)


def test_tf32_is_refused_where_no_unit_runs_it():
    """A CPU has no TF32: the same run in fp32 would be told as something else."""
    with pytest.raises(PrecisionError, match="CUDA GPUs from Ampere on"):
        choose_precision("tf32", CPU, **SIZES)


def test_fp8_is_refused_where_no_unit_runs_it(monkeypatch):
    """An A100 (8.0) has no FP8 units and an H100 (9.0) has; AMD's have other FP8 formats; MPS has none."""
    cuda = torch.device("cuda")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (8, 0))
    with pytest.raises(PrecisionError, match=r"from compute capability 8\.9 on .*this one has 8\.0: use bf16"):
        choose_precision("fp8", cuda, **SIZES)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda _: (9, 0))
    assert choose_precision("fp8", cuda, **SIZES).precision == "fp8"
    with pytest.raises(PrecisionError, match="mps has none"):
        choose_precision("fp8", torch.device("mps"), **SIZES)
    monkeypatch.setattr("torch.version.hip", "6.4")
    with pytest.raises(PrecisionError, match="ROCm has none"):
        choose_precision("fp8", cuda, **SIZES)


def test_fp8_on_a_cpu_is_told_to_be_slow():
    """It is taken there for its arithmetic, and nobody should think that it is fast."""
    assert "a CPU has no FP8 units" in choose_precision("fp8", CPU, **SIZES).reason


@pytest.mark.parametrize("asked", ["mxfp8", "nvfp4", "fp16-master"])
def test_what_only_the_planner_knows_is_refused_by_name(asked):
    with pytest.raises(PrecisionError, match=f"{asked} is known to planner and formulas"):
        choose_precision(asked, CPU, **SIZES)
    with pytest.raises(PrecisionError, match=asked):
        autocast(CPU, asked)


def test_tf32_is_a_switch_that_is_put_back():
    """FP32 products may run in TF32 inside, and run in FP32 again afterwards, also after an error."""
    with contextlib.suppress(ZeroDivisionError), tensor_float_32():
        assert torch.get_float32_matmul_precision() == "high"
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == "highest"


@pytest.mark.parametrize("asked", ["fp32", "bf16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"])
def test_what_is_asked_for_is_taken_without_a_probe(asked):
    """A format that is named is taken, and nothing is timed."""
    choice = choose_precision(asked, CPU, **SIZES)
    assert (choice.precision, choice.fp32_s, choice.bf16_s) == (asked, None, None)


@pytest.mark.parametrize(("bf16_s", "expected"), [(0.5, "bf16"), (0.97, "fp32"), (4.0, "fp32")])
def test_auto_takes_bf16_only_where_it_pays(monkeypatch, bf16_s, expected):
    """bfloat16 has to be at least 5 % faster than float32, because it has fewer bits."""
    times = {"fp32": 1.0, "bf16": bf16_s}
    monkeypatch.setattr("torchledger.trainer.precision._probe", lambda precision, *_: times[precision])
    choice = choose_precision("auto", CPU, **SIZES)
    assert choice.precision == expected
    assert f"precision {expected}" in choice.reason


def test_the_probe_times_both_formats():
    """`auto` on a CPU really measures, and reports both figures."""
    choice = choose_precision("auto", CPU, **SIZES)
    assert choice.fp32_s > 0
    assert choice.bf16_s > 0


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
