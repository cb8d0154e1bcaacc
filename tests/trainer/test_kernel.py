from dataclasses import replace

import pytest
import torch

from torchledger.spec import Recipe
from torchledger.trainer.kernel import choose_kernel

CPU = torch.device("cpu")
RECIPE = Recipe(batch_size=4, sequence_length=16, accumulation_steps=2)


@pytest.mark.parametrize(("math_s", "expected"), [(1.0, "math"), (3.0, "fused")])
def test_the_faster_one_is_taken(monkeypatch, tiny, math_s, expected):
    """On a CPU the kernel with the shorter time is taken, and the reason has both times."""
    times = {"math": math_s, "fused": 2.0}
    monkeypatch.setattr("torchledger.trainer.kernel._probe", lambda kernel, *_: times[kernel])
    choice = choose_kernel(tiny, RECIPE, CPU)
    assert choice.kernel == expected
    assert f"attention {expected}" in choice.reason


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_both_are_really_timed(any_spec, precision, monkeypatch):
    """The probe runs for every kind of head."""
    monkeypatch.setattr("torchledger.trainer.kernel.PROBE_S", 0.0)
    choice = choose_kernel(any_spec, replace(RECIPE, precision=precision), CPU)
    assert (choice.math_s is None) == (any_spec.attention.logit_soft_cap is not None)


def test_scores_that_would_fill_the_memory_are_not_tried(tiny):
    """A sequence of 2**20 tokens would have 16 TiB of scores; nothing of it is allocated to find out."""
    choice = choose_kernel(tiny, replace(RECIPE, sequence_length=2**20), CPU)
    assert (choice.kernel, choice.math_s) == ("fused", None)
    assert f"{4 * 2**40 * 4:,} bytes" in choice.reason


def test_a_soft_cap_and_a_gpu_need_no_probe(tiny):
    """A soft-cap needs the scores in memory; a GPU takes the fused kernel."""
    capped = replace(tiny, attention=replace(tiny.attention, logit_soft_cap=3.0))
    assert choose_kernel(capped, RECIPE, CPU).kernel == "math"
    assert choose_kernel(tiny, RECIPE, torch.device("cuda")).kernel == "fused"
