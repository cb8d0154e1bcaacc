import pytest

from torchledger.formula.per_token import FORMULAS
from torchledger.machine import get
from torchledger.planner import PlanError
from torchledger.planner.claim import Claim, audit
from torchledger.planner.printed import Printed, read_printed
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
from torchledger.spec.presets import get as preset

H100, PEAK = get("h100"), 989.4e12
#: Nemotron-4 15B (arXiv:2402.16819, table 1): 8 key-value heads, squared ReLU, untied embeddings.
NEMOTRON = ModelSpec("n", 256_000, 4096, 32, 6144, AttentionSpec(48, 8), MlpSpec(24_576, "plain", "relu_squared"))


def test_a_speed_is_held_against_every_convention():
    """MFU is FLOPs a token times tokens/s over the peak, by each formula; the claimed one is marked."""
    llama, T, rate = preset("llama-3-8b"), 8192, 9000.0
    palm = FORMULAS["PaLM appendix B"][2](llama, T) * rate / PEAK
    found = audit(llama, T, H100, "bf16", Claim(read_printed("9000.0"), None, read_printed(f"{palm:.4f}")))
    shares = {row.reading.convention: row.utilisation for row in found.rows}
    assert shares["PaLM appendix B"] == pytest.approx(palm)
    assert shares["6N"] == pytest.approx(6 * 8_030_261_248 * rate / PEAK)
    marked = {row.reading.convention for row in found.rows if row.reproduces}
    assert marked == {"PaLM appendix B", "nanoGPT", "llm-foundry"}  # the same for a model without learned positions
    assert set(found.explanations[0].conventions) == marked
    assert found.explanations[0].num_changes == 0
    assert found.is_possible


def test_nemotrons_66_percent_are_58_5():
    """NVIDIA's 25.04 recipe prints 66.07 % and 653.4 TFLOP/s at 2.66 s for 64 sequences of 4,096 on 16 H100.

    The model's own FLOPs make that 58.5 %. The printed figure is 72·L·D²·(1 + T/6D + V/12LD), which takes 48 key-value
    heads for 8: it counts full multi-head attention, 13 % more than the model does; its peak is 989 TFLOP/s.
    """
    step = read_printed("2.66")
    rate = 64 * 4096 / step.value / 16
    claim = Claim(Printed(rate, rate * step.relative), read_printed("653.4").times(1e12), read_printed("66.07%"))
    found = audit(NEMOTRON, 4096, H100, "bf16", claim)
    shares = {row.reading.convention: row.utilisation for row in found.rows}
    assert round(shares["this ledger, attention full"] * 100, 1) == 58.5
    assert [each.conventions for each in found.explanations] == [("Narayanan",)]
    assert "989 TFLOP/s" in found.explanations[0].peak.what
    assert any("48 key-value heads (the model has 8)" in each for each in found.findings)
    D, L, T, V = 6144, 32, 4096, 256_000
    key_value = 2 * D * (48 - 8) * 128  # weights of a layer that the model does not have
    assert FORMULAS["Narayanan"][2](NEMOTRON, T) == 72 * L * D * D + 12 * L * D * T + 6 * D * V
    assert FORMULAS["Narayanan"][2](NEMOTRON, T) - FORMULAS["Megatron-Core 2024"][2](NEMOTRON, T) == 6 * L * key_value


def test_the_recipe_of_the_next_month_counts_the_model():
    """25.05.05 prints 56.7 % and 560.8 TFLOP/s at 2.746 s: the model's own matrices with the whole square."""
    step = read_printed("2.746")
    rate = 64 * 4096 / step.value / 16
    claim = Claim(Printed(rate, rate * step.relative), read_printed("560.8").times(1e12), read_printed("56.7%"))
    found = audit(NEMOTRON, 4096, H100, "bf16", claim)
    assert "Megatron-Core 2024" in found.explanations[0].conventions
    assert found.explanations[0].num_changes == 0


def test_104_percent_on_an_h100_is_the_peak_of_an_a100():
    """A trainer (nanoGPT) divides by 312 TFLOP/s whatever it runs on (pull 464): 32.8 % is printed as 104 %."""
    rate = 1.04 * 312e12 / FORMULAS["nanoGPT"][2](preset("gpt2"), 1024)
    found = audit(preset("gpt2"), 1024, H100, "bf16", Claim(Printed(rate, 0.5), None, read_printed("104%")))
    assert not found.is_possible
    assert "impossible" in found.findings[0]
    assert "nanoGPT" in found.explanations[0].conventions
    assert found.explanations[0].peak.flops_per_s == 312e12
    assert found.explanations[0].num_changes == 1


@pytest.mark.parametrize(
    ("peak", "words"), [(1978.8e12, "structured sparsity"), (494.7e12, "tf32"), (1978.9e12, "fp8")]
)
def test_a_wrong_peak_of_the_same_chip_is_named(peak, words):
    """Divided by the sparse, TF32 or FP8 peak, the figure is told apart by which peak gives it."""
    spec = preset("llama-3-8b")
    share = FORMULAS["6N"][2](spec, 8192) * 9000 / peak
    figure = Printed(share, share * 1e-5)
    found = audit(spec, 8192, H100, "bf16", Claim(Printed(9000, 1e-4), None, figure))
    assert any(words in each.peak.what and "6N" in each.conventions for each in found.explanations)


def test_a_gated_mlp_that_the_model_does_not_have_is_found():
    """A figure that counts three matrices where the model has two names that mistake."""
    three = 6 * 32 * 6144 * 24_576
    flops = FORMULAS["Megatron-Core 2024"][2](NEMOTRON, 4096) + three
    share = flops * 5000 / PEAK
    found = audit(NEMOTRON, 4096, H100, "bf16", Claim(Printed(5000, 1e-3), None, Printed(share, share * 1e-5)))
    assert any("gated MLP of three matrices" in each.variant.what for each in found.explanations)
    assert {each.num_changes for each in found.explanations} == {1}


def test_hardware_utilisation_is_explained_with_recompute():
    """MPT-70B on 512 H100 (llm-foundry): 1,007.1 tokens/s a chip, MFU 41.25 %, HFU 55 % with everything run again."""
    mpt = ModelSpec("mpt", 50_368, 2048, 80, 8192, AttentionSpec(64), MlpSpec(32_768, "plain"), tied_embeddings=True)
    claim = Claim(read_printed("1007.1"), None, read_printed("41.25%"), read_printed("55%"))
    found = audit(mpt, 2048, H100, "bf16", claim)
    plain = [each for each in found.explanations if each.num_changes == 0]
    assert any(each.figure == "MFU" and "llm-foundry" in each.conventions for each in plain)
    assert any(
        each.figure == "HFU" and any(name.startswith("llm-foundry, the whole forward") for name in each.conventions)
        for each in plain
    )


def test_two_printed_figures_speak_for_themselves():
    """TFLOP/s over MFU is a peak; TFLOP/s over tokens/s is a convention."""
    spec, rate = preset("llama-3-8b"), 10_000.0
    flops = FORMULAS["torchtitan 2026"][2](spec, 8192) * rate
    claim = Claim(Printed(rate, 0.05), Printed(flops, 0.05e12), Printed(flops / PEAK, 0.00005))
    told = audit(spec, 8192, H100, "bf16", claim).findings
    assert any("peak of 989.4 TFLOP/s: the dense bf16 peak of H100 SXM" in each for each in told)
    assert any("torchtitan" in each and "a token" in each for each in told)


def test_flops_alone_say_what_tokens_they_would_be():
    """Without tokens/s no MFU can be recounted, but each convention says how many tokens the FLOP/s stand for."""
    spec = preset("llama-3-8b")
    found = audit(spec, 8192, H100, "bf16", Claim(None, read_printed("400").times(1e12)))
    rows = {row.reading.convention: row for row in found.rows}
    assert rows["6N"].tokens_per_s == pytest.approx(400e12 / (6 * 8_030_261_248))
    assert rows["6N"].utilisation is None
    assert found.explanations == ()


def test_more_than_the_peak_is_impossible():
    """FLOP/s beyond the dense peak, and a speed whose masked FLOPs alone are beyond it."""
    spec = preset("llama-3-8b")
    assert not audit(spec, 8192, H100, "bf16", Claim(None, read_printed("1200").times(1e12))).is_possible
    fast = audit(spec, 8192, H100, "bf16", Claim(read_printed("30000")))
    assert not fast.is_possible
    assert any("so many tokens" in each for each in fast.findings)


def test_a_figure_that_nothing_gives_is_left_unexplained():
    """No convention is made to fit."""
    found = audit(preset("gpt2"), 1024, H100, "bf16", Claim(read_printed("100000.0"), None, read_printed("1.2345%")))
    assert found.explanations == ()
    assert not any(row.reproduces for row in found.rows)


def test_an_audit_needs_a_speed():
    """A utilisation alone has nothing to be held against."""
    with pytest.raises(PlanError, match="--tokens-per-s"):
        audit(preset("gpt2"), 1024, H100, "bf16", Claim(mfu=read_printed("50%")))


@pytest.mark.parametrize(
    ("chip", "model", "tflops", "mfu"),
    [
        ("h100", "llama-3.1-405b", "430", "43.46%"),
        ("h100", "llama-3.1-405b", "430", "43%"),
        ("a100", "gpt-3-175b", "148", "47%"),
    ],
)
def test_flops_over_the_peak_are_the_printed_mfu(chip, model, tflops, mfu):
    """430/989.4 = 43.46 % and 148/312 = 47.4 %: where a speed is in TFLOP/s, no convention is needed to confirm it."""
    claim = Claim(None, read_printed(tflops).times(1e12), read_printed(mfu))
    found = audit(preset(model), 2048, get(chip), "bf16", claim)
    assert [(each.conventions, each.peak, each.num_changes) for each in found.explanations] == [
        (("the printed TFLOP/s",), found.peak, 0)
    ]
    assert found.explanations[0].value == pytest.approx(float(tflops) * 1e12 / get(chip).peak("bf16"))


def test_flops_over_another_peak_name_it():
    """148/624 = 23.7 %: the peak with structured sparsity; 148 TFLOP/s are 31 % by no peak at all."""
    spec, rate = preset("gpt-3-175b"), read_printed("148").times(1e12)
    sparse = audit(spec, 2048, get("a100"), "bf16", Claim(None, rate, read_printed("24%"))).explanations
    assert ["sparsity" in each.peak.what and each.num_changes == 1 for each in sparse] == [True]
    assert audit(spec, 2048, get("a100"), "bf16", Claim(None, rate, read_printed("31.0%"))).explanations == ()


def test_a_near_miss_names_the_nearest_convention():
    """3321/7397 is 0.06 % below Megatron-Core 2025's FLOPs of a token: no convention gives it, and that one nearly."""
    spec = preset("llama-3-70b")
    claim = Claim(read_printed("7397"), read_printed("3321").times(1e12))
    told = next(each for each in audit(spec, 8192, get("gb300"), "nvfp4", claim).findings if "a token" in each)
    off = FORMULAS["Megatron-Core 2025"][2](spec, 8192) / (3321e12 / 7397) - 1
    assert 0.0005 < off < 0.0007
    assert "no convention gives for this model; nearest is Megatron-Core 2025, 0.057" in told


def test_a_utilisation_that_nothing_gives_has_a_nearest_convention():
    """Of a speed whose MFU by 6N is 1 % off the printed one, 6N is named with how far off it is."""
    spec, share = preset("gpt2"), 1.01 * FORMULAS["6N"][2](preset("gpt2"), 1024) * 1e5 / PEAK
    claim = Claim(Printed(1e5, 0.05), None, Printed(share, share * 1e-5))
    told = [each for each in audit(spec, 1024, H100, "bf16", claim).findings if "nearest" in each]
    assert len(told) == 1
    assert "MFU" in told[0]
    assert "nearest is 6N, 0.990 % less" in told[0]
