from dataclasses import replace

import pytest

from torchledger.formula import num_parameters
from torchledger.machine import NoPeak, get
from torchledger.planner.suspects import own_peak, peaks, variants
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
from torchledger.spec.presets import get as preset


def test_the_right_peak_stands_first_and_only_it_and_its_roundings_are_right():
    """H100 in BF16: 989.4, also printed 989, 990 and 989.5; sparse, FP8, TF32 and an A100's are other peaks."""
    found = peaks(get("h100"), "bf16")
    assert found[0] == own_peak(get("h100"), "bf16")
    assert {each.flops_per_s / 1e12 for each in found if each.is_own} == {989.4, 989, 990, 989.5}
    others = {round(each.flops_per_s / 1e12, 1) for each in found if not each.is_own}
    assert {1978.8, 1978.9, 494.7, 312.0} <= others


def test_no_peak_is_listed_twice():
    """Equal figures are one peak, the first that has it."""
    for name, form in (("h100", "fp8"), ("a100", "bf16"), ("gb200", "nvfp4")):
        values = [each.flops_per_s for each in peaks(get(name), form)]
        assert len(values) == len(set(values))


def test_a_format_that_the_chip_lacks_is_an_error():
    """V100 has no BF16."""
    with pytest.raises(NoPeak):
        own_peak(get("v100"), "bf16")


def test_the_mistakes_that_are_made_with_a_model():
    """The MLP's matrices, key-value heads, experts; the model itself first, each with more or fewer parameters."""
    dense = ModelSpec("d", 100, 64, 2, 32, AttentionSpec(4, 2), MlpSpec(64, "plain"))
    found = variants(dense)
    assert found[0].spec == dense
    assert found[0].what == ""
    assert [num_parameters(each.spec) - num_parameters(dense) for each in found[1:]] == [
        2 * 32 * 64,  # a gate in both layers
        2 * 2 * 2 * 8 * 32,  # two more key heads and value heads of 8 in both layers
    ]
    assert "two matrices" in variants(replace(dense, mlp=MlpSpec(64)))[1].what
    assert variants(preset("mixtral-8x7b"))[-1].spec.moe.experts_per_token == 8
