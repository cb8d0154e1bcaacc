"""Kernel sets against what their papers say is kept."""

from dataclasses import replace

import pytest

from torchledger.formula import KERNELS, parts
from torchledger.formula.kernels import kernels_of
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, PositionSpec, Recipe, SpecError

s, b, a, h, v = 64, 2, 8, 128, 512  # sequence, micro-batch, heads, width, vocabulary: the paper's letters
BIASES = dict.fromkeys(("query_bias", "key_bias", "value_bias", "output_bias"), True)


def _gpt(t=1, dropout=0.1):
    """GPT-3's kind of model as one of t tensor parallel ranks holds it."""
    return ModelSpec(
        "gpt",
        v // t,
        2048,
        2,
        h,
        AttentionSpec(a // t, head_size=h // a, dropout=dropout, **BIASES),
        MlpSpec(4 * h // t, "plain", "gelu", up_bias=True, down_bias=True),
        norm=NormSpec("layer", bias=True),
        position=PositionSpec("learned"),
        dropout=dropout,
    )


RECIPE = Recipe(batch_size=b, sequence_length=s, precision="bf16-master")
STATISTICS = 2 * (2 * 4 * s * b)  # mean and 1/deviation of a row in FP32 for two norms, which the paper leaves out


@pytest.mark.parametrize("t", [1, 2, 8])
@pytest.mark.parametrize(
    ("recompute", "per_sbh"),
    [
        ("none", lambda t: 10 + 24 / t + 5 * a * s / (h * t)),
        ("selective", lambda t: 10 + 24 / t),
        ("full", lambda _: 2),
    ],
)
def test_megatron_keeps_what_the_paper_says(t, recompute, per_sbh):
    """s·b·h·(34 + 5·a·s/h), over tensor parallel ranks s·b·h·(10 + 24/t + 5·a·s/(h·t)): arXiv:2205.05198, eqs. 1, 2."""
    layer = parts(_gpt(t), replace(RECIPE, recompute=recompute), kernels="megatron")[1]
    statistics = 0 if recompute == "full" else STATISTICS
    assert layer.kept_bytes == s * b * h * per_sbh(t) + statistics


@pytest.mark.parametrize("t", [1, 4])
def test_megatrons_ends_are_the_papers_too(t):
    """Section 4.3: a dropout mask of s·b·h for the embedding; 4·s·b·h·(1 + v/(h·t)) for norm, head and loss."""
    embedding, *_, head = parts(_gpt(t), RECIPE, kernels="megatron")
    indices = 8 * s  # of positions
    assert embedding.kept_bytes == s * b * h + indices
    statistics, target, mask, losses = 2 * 4 * s * b, 8 * s * b, s * b, 4 * s * b
    assert head.kept_bytes == 4 * s * b * h + 4 * s * b * v // t + statistics + target + mask + losses


def test_megatrons_loss_writes_over_the_logits():
    """Beside the kept FP32 softmax: 2·s·b·v of 16-bit logits forward, and of their gradient backward at most."""
    head = parts(_gpt(), RECIPE, kernels="megatron")[-1]
    assert head.forward_temporary_bytes == 2 * s * b * v
    small = 9 * s * b + 4 * s * b  # what of the loss itself is gone by then
    assert 2 * s * b * v - small <= head.backward_temporary_bytes <= 2 * s * b * v


def test_eager_loss_holds_logits_three_times():
    """16-bit logits, FP32 logits and log-probabilities forward; backward two FP32 gradients beside what is kept."""
    head = parts(_gpt(), RECIPE, kernels="flash")[-1]
    assert head.forward_temporary_bytes == (2 + 4) * s * b * v
    assert head.backward_temporary_bytes == 2 * 4 * s * b * v - 4  # the number of targets is gone by then


def test_a_compiled_loss_never_has_logits_in_32_bit():
    head = parts(_gpt(), RECIPE, kernels="compiled")[-1]
    logits = [each for each in head.activations if each.name == "head: output"]
    assert [each.total_bytes for each in logits] == [2 * s * b * v]
    assert head.backward_temporary_bytes < 4 * s * b * v


def _llama():
    return ModelSpec("llama", v, 2048, 2, h, AttentionSpec(a, a // 4), MlpSpec(3 * h))


def _kept(kernels, recipe=RECIPE):
    layer = parts(_llama(), recipe, kernels=kernels)[1]
    return {each.name.removeprefix("layers.*."): each.total_bytes for each in layer.activations}


def test_flash_attention_keeps_shared_heads_once_and_no_scores():
    """Queries, a quarter as many keys and values, the output, and 4 bytes a row and head."""
    kept = _kept("megatron-flash")
    D = 2 * s * b * h
    names = ("query: rotated", "key: rotated", "value read", "mixed values", "logsumexp")
    found = {name: size for key, size in kept.items() for name in names if name in key}
    assert found == dict(zip(names, (D, D // 4, D // 4, D, 4 * s * b * a), strict=True))
    assert not any("weights" in name for name in kept)


def test_a_compiler_makes_cheap_results_again():
    """Norm outputs and gate · up are not kept; the residual stream, what matmuls made and attention are."""
    eager, compiled = _kept("flash"), _kept("compiled")
    gone = {"attention_norm: output", "mlp_norm: output", "mlp.silu output", "mlp.gate · up"}
    assert gone <= set(eager)
    assert not gone & set(compiled)
    assert set(compiled) < set(eager)


def test_one_set_has_two_names_and_another_name_is_refused():
    assert KERNELS["transformer-engine"] is KERNELS["megatron-flash"]
    assert kernels_of(KERNELS["cuda"]).name == "cuda"
    with pytest.raises(SpecError, match="known are cpu, cuda"):
        kernels_of("tpu")


@pytest.mark.parametrize("kernels", KERNELS)
def test_every_set_says_where_it_comes_from_and_costs_the_same_matmuls(kernels):
    """FLOPs of contractions are the model's, whatever runs them."""
    assert KERNELS[kernels].source

    def contractions(name):
        layer = parts(_llama(), RECIPE, kernels=name)[1]
        return sum(line.total.flops_full for line in layer.lines if line.kind in {"matmul", "attention"})

    assert contractions(kernels) == contractions("cpu")
