"""Seconds of a step before it runs: what stands for what; no assertion on how fast."""

from functools import partial

import pytest
import torch

from torchledger.cli import pace as pace_module
from torchledger.cli.looked import look
from torchledger.cli.pace import pace
from torchledger.meter import kernel_seconds
from torchledger.planner import Rates
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

TINY = ModelSpec("tiny", 64, 16, 2, 32, AttentionSpec(4), MlpSpec(64))
RATES = Rates(dict.fromkeys(("fp32", "bf16", "fp8"), ((1.0, 1e9),)), ((1.0, 1e9),))


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Kernels are run the fewest times."""
    monkeypatch.setattr(
        pace_module, "kernel_seconds", lambda *args, **_: kernel_seconds(*args, budget_s=0.0, pool_bytes=0)
    )


@pytest.mark.parametrize(("precision", "attention"), [("fp32", "fused"), ("bf16", "math")])
def test_all_seconds_of_a_cpu_are_of_kernels(precision, attention):
    """Every line that moves bytes has its kernel's own time, and more than it by what an operation takes beside."""
    recipe = Recipe(batch_size=8, sequence_length=16, precision=precision, attention=attention)
    found = pace(look(TINY, recipe), recipe, RATES, times_kernels=True)
    assert {each.bound for each in found.lines if each.line.work.bytes_moved} == {"kernel"}
    assert found.by_kernels
    assert found.assumptions[-1].startswith("Python and autograd take ")


def test_an_operation_takes_what_it_takes_beside(monkeypatch):
    """With kernels of 2 s and 3 s beside each, n operations take 5 n s."""
    recipe = Recipe(batch_size=8, sequence_length=16)
    trace = look(TINY, recipe)
    lines = [line for line in trace.ledger.folded() if line.work.bytes_moved]
    monkeypatch.setattr(pace_module, "_host_s", lambda _: 3.0)
    monkeypatch.setattr(pace_module, "kernel_seconds", lambda *_, **__: tuple((line, 2.0) for line in lines))
    seconds = pace(trace, recipe, RATES, times_kernels=True).by_bound["kernel"]
    assert seconds == 5.0 * sum(line.times for line in lines)


def test_the_product_of_fp8_keeps_its_rate():
    """It takes milliseconds whatever it multiplies, so it is not run: the roofline stands, and is named."""
    recipe = Recipe(batch_size=8, sequence_length=16, precision="fp8")
    found = pace(look(TINY, recipe), recipe, RATES, times_kernels=True)
    assert {each.line.op for each in found.lines if each.bound == "compute"} == {"matmul"}
    assert "roofline, the longer of computing and moving bytes, for matmul" in found.assumptions


def test_elsewhere_nothing_is_run(monkeypatch):
    """On a GPU, or where operands do not fit, no kernel is timed: all is the roofline of the rates."""
    monkeypatch.setattr(pace_module, "kernel_seconds", partial(pytest.fail, "timed"))
    recipe = Recipe(batch_size=8, sequence_length=16)
    found = pace(look(TINY, recipe), recipe, RATES, times_kernels=False)
    assert "kernel" not in found.by_bound
    assert not found.by_kernels


def test_the_run_draws_what_it_would_have_drawn():
    """Timing an idle model's step leaves the random stream as it was."""
    recipe = Recipe(batch_size=8, sequence_length=16)
    before = torch.get_rng_state()
    pace(look(TINY, recipe), recipe, RATES, times_kernels=True)
    assert torch.equal(torch.get_rng_state(), before)
