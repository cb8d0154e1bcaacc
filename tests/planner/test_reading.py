from dataclasses import replace

import pytest

from torchledger.formula.per_token import FORMULAS
from torchledger.planner.reading import hardware_readings, model_readings, shape_assumed
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
from torchledger.spec.presets import get

GPT = ModelSpec("g", 100, 64, 3, 32, AttentionSpec(4), MlpSpec(128, "plain"))


def test_every_formula_without_recompute_is_a_reading_of_mfu():
    """Our own two counts and every formula in circulation but the one that has recompute in it."""
    names = [each.convention for each in model_readings(GPT, 16)]
    assert names[:2] == ["this ledger, attention full", "this ledger, attention exact"]
    assert set(names[2:]) == set(FORMULAS) - {"Narayanan with recompute"}
    assert {each.recompute for each in model_readings(GPT, 16)} == {"none"}


def test_full_recompute_is_a_third_more():
    """Forward is a third of a step, and all of it runs again (llm-foundry's HFU is 4/3 of its MFU)."""
    model = {each.convention: each.flops_per_token for each in model_readings(GPT, 16)}
    for each in hardware_readings(GPT, 16, ("full",)):
        if each.convention == "Narayanan with recompute":
            assert each.flops_per_token == FORMULAS[each.convention][2](GPT, 16)
            assert each.name == each.convention
        else:
            assert each.flops_per_token == pytest.approx(model[each.convention] * 4 / 3)


def test_selective_recompute_is_attention_forward():
    """Attention's core again: 4·L·H·Q·T FLOPs where its square counts whole, half where it is halved."""
    L, T, width = 3, 16, 4 * 8
    model = {each.convention: each.flops_per_token for each in model_readings(GPT, T)}
    again = {
        each.convention: each.flops_per_token - model[each.convention]
        for each in hardware_readings(GPT, T, ("selective",))
    }
    assert again["PaLM appendix B"] == pytest.approx(4 * L * width * T)
    assert again["Megatron-Core 2025"] == pytest.approx(2 * L * width * T)
    assert again["6N"] == 0


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (GPT, ""),
        (replace(GPT, attention=AttentionSpec(4, 2)), "4 key-value heads (the model has 2)"),
        (replace(GPT, attention=AttentionSpec(4, head_size=16)), "heads that fill"),
        (replace(GPT, mlp=MlpSpec(128)), "two matrices"),
        (replace(GPT, mlp=MlpSpec(96, "plain")), "128 wide (the model's is 96)"),
        (get("deepseek-v3"), "standard attention"),
        (get("mixtral-8x7b"), "no experts"),
    ],
)
def test_what_a_formula_of_widths_takes_for_granted(spec, words):
    """Narayanan's and Casson's have one shape of layer; others count the model's own matrices."""
    assert words in shape_assumed(spec, "Narayanan")
    assert bool(shape_assumed(spec, "Narayanan with recompute")) == bool(words)
    assert shape_assumed(spec, "Megatron-Core 2025") == ""
