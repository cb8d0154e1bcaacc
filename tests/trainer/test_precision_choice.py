"""`auto` times a whole layer in each format, and takes the one that is faster."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from torchledger.formula import count
from torchledger.spec import Recipe
from torchledger.trainer import precision_choice
from torchledger.trainer.kernel import KernelChoice
from torchledger.trainer.precision import PrecisionError
from torchledger.trainer.precision_choice import _short, choose_precision
from torchledger.trainer.trial import one_layer

CPU = torch.device("cpu")
RECIPE = Recipe(batch_size=4, sequence_length=16, accumulation_steps=2)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Probes that run no longer than they must."""
    monkeypatch.setattr(precision_choice, "PROBE_S", 0.0)
    monkeypatch.setattr("torchledger.trainer.kernel.PROBE_S", 0.0)


def test_fp8_on_a_cpu_is_told_to_be_slow(tiny):
    """It is taken there for its arithmetic, and nobody should think that it is fast."""
    reason = choose_precision("fp8", tiny, RECIPE, CPU).reason
    assert "a CPU has no FP8 units" in reason
    assert "hundreds of times slower than those of fp32" in reason


@pytest.mark.parametrize("asked", ["mxfp8", "nvfp4", "fp16-master"])
def test_what_only_the_planner_knows_is_refused_by_name(tiny, asked):
    """A format that no code here runs is not taken for another."""
    with pytest.raises(PrecisionError, match=f"{asked} is known to planner and formulas"):
        choose_precision(asked, tiny, RECIPE, CPU)


@pytest.mark.parametrize("asked", ["fp32", "bf16", "bf16-master", "bf16-moments", "bf16-pure", "fp8"])
def test_what_is_asked_for_is_taken_without_a_probe(tiny, asked, monkeypatch):
    """A format that is named is taken, and nothing is timed."""
    monkeypatch.setattr(precision_choice, "best_times", lambda *_: pytest.fail("timed"))
    choice = choose_precision(asked, tiny, RECIPE, CPU)
    assert (choice.precision, choice.fp32_s, choice.bf16_s) == (asked, None, None)


@pytest.mark.parametrize(("bf16_s", "expected"), [(0.5, "bf16"), (0.97, "fp32"), (4.0, "fp32")])
def test_auto_takes_bf16_only_where_it_pays(tiny, monkeypatch, bf16_s, expected):
    """bfloat16 has to be at least 5 % faster than float32, because it has fewer bits; the reason has both times."""
    monkeypatch.setattr(precision_choice, "best_times", lambda *_: (1.0, bf16_s))
    choice = choose_precision("auto", tiny, RECIPE, CPU)
    assert choice.precision == expected
    assert f"precision {expected}: a layer, forward and backward, takes a core {bf16_s:.2g} s in bf16" in choice.reason
    assert "and 1 s in fp32" in choice.reason


def test_attention_counts_in_the_choice(tiny, monkeypatch):
    """Where fused attention in bfloat16 is slow, FP32 is taken although a linear map alone is faster in bfloat16."""
    plain, slowed = torch.nn.functional.scaled_dot_product_attention, []

    def attention(query, key, value, *args, **kwargs):
        if query.dtype == torch.bfloat16:
            slowed.append(sum(range(2_000_000)))  # tens of milliseconds, hundreds of times this layer's linear maps
        return plain(query, key, value, *args, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", attention)
    choice = choose_precision("auto", tiny, replace(RECIPE, attention="fused"), CPU)
    assert slowed
    assert choice.precision == "fp32"
    assert choice.bf16_s > choice.fp32_s


def test_each_format_is_timed_with_its_faster_kernel(tiny, monkeypatch):
    """With the kernel open too, each format's layer has the kernel that is faster in it, and the chosen one goes on."""
    faster = {"fp32": "fused", "bf16": "math"}
    timed = []

    def kernel(_, recipe, __):
        return KernelChoice(faster[recipe.precision], recipe.precision)

    def trial(_, recipe, __):
        timed.append((recipe.precision, recipe.attention))
        return SimpleNamespace(run=None)

    monkeypatch.setattr(precision_choice, "choose_kernel", kernel)
    monkeypatch.setattr(precision_choice, "Trial", SimpleNamespace(of=trial))
    monkeypatch.setattr(precision_choice, "best_times", lambda *_: (1.0, 0.5))
    choice = choose_precision("auto", tiny, RECIPE, CPU, with_kernel=True)
    assert timed == [("fp32", "fused"), ("bf16", "math")]
    assert choice.kernel == KernelChoice("math", "bf16")
    assert "0.5 s in bf16 with math attention and 1 s in fp32 with fused attention" in choice.reason


def test_the_probe_runs_for_every_model(any_spec):
    """Whatever the model is, both formats are really timed."""
    choice = choose_precision("auto", any_spec, RECIPE, CPU, with_kernel=True)
    assert choice.fp32_s > 0
    assert choice.bf16_s > 0


def test_a_large_layer_is_timed_on_few_sequences_and_a_huge_one_on_a_part(tiny, monkeypatch):
    """Rows go first, down to one whole sequence; only one that is itself too long is halved, and that is said."""
    sequence = count(one_layer(tiny), replace(RECIPE, batch_size=1, accumulation_steps=1)).flops
    recipe = replace(RECIPE, batch_size=8, accumulation_steps=1)
    monkeypatch.setattr(precision_choice, "PROBE_FLOPS", 3 * sequence)
    assert (_short(tiny, recipe).batch_size, _short(tiny, recipe).sequence_length) == (3, 16)
    monkeypatch.setattr(precision_choice, "PROBE_FLOPS", sequence - 1)
    short = _short(tiny, recipe)
    assert (short.batch_size, short.sequence_length) == (2, 8)  # two halves cost less than the whole
    assert "here, on 8 of a sequence's 16 tokens" in choose_precision("auto", tiny, recipe, CPU).reason


def test_a_layer_that_fills_the_memory_is_not_tried(tiny, monkeypatch):
    """Where a layer does not fit beside what is free nothing is made of it, and the reason says so."""
    monkeypatch.setattr(precision_choice, "facts", lambda _: SimpleNamespace(free_bytes=1000))
    monkeypatch.setattr(precision_choice, "Trial", None)
    choice = choose_precision("auto", tiny, RECIPE, CPU)
    assert choice.precision == "fp32"
    assert "and 1,000 are free" in choice.reason
