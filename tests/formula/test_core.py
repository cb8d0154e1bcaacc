"""The core of attention: which kernel runs, in which format, and what it keeps."""

from dataclasses import replace

import pytest

from torchledger.formula.core import core, has_fused_kernel, why_scores_are_kept
from torchledger.formula.core_fused import flash
from torchledger.formula.heads import Context, Heads
from torchledger.formula.tape import Tape
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe

B, T, H, K, D_HEAD = 2, 6, 4, 2, 8
SPEC = ModelSpec("s", 50, 64, 1, H * D_HEAD, AttentionSpec(H, K), MlpSpec(16))


def _walked(spec, kernel, *, precision="fp32", batch=B, queries="fp32", mask=False):
    tape = Tape(precision)
    Kv = spec.num_key_value_heads
    heads = Heads(
        tape.make("q", (batch, T, H, D_HEAD), queries),
        tape.make("k", (batch, T, Kv, D_HEAD), queries),
        tape.make("v", (batch, T, Kv, D_HEAD), "bf16" if precision == "bf16" else "fp32"),
    )
    context = Context(tape.make("mask", (1, T, T), precision, requires_grad=False) if mask else None, T * T)
    y = core(tape, spec, Recipe(attention=kernel, precision=precision), heads, context)
    assert y.shape == (batch, T, H * D_HEAD)
    return {each.name: each.total_bytes for each in tape.activations()}, list(tape.lines())


def test_the_fused_kernel_keeps_what_it_reads_its_output_and_a_logsumexp():
    kept, lines = _walked(replace(SPEC, attention=AttentionSpec(H)), "fused")
    size = 4 * B * T * H * D_HEAD
    assert kept == {"q": size, "k": size, "v": size, "core.mixed values": size, "core.logsumexp": 4 * B * H * T}
    assert {line.op for line in lines if line.kind == "attention"} == {"attention", "attention_backward"}


def test_it_reads_shared_heads_repeated_and_keeps_the_copies():
    kept, _ = _walked(SPEC, "fused")
    size = 4 * B * T * H * D_HEAD
    assert (kept["core.key"], kept["core.value"]) == (size, size)
    assert "k" not in kept


def test_a_flash_kernel_reads_shared_heads_once():
    """It is given as many key and value heads as there are: 4·B·T·(H + 2·K)·d bytes in, kept as they came."""
    tape = Tape("fp32")
    heads = Heads(*(tape.make(name, (B, T, n, D_HEAD), "fp32") for name, n in (("q", H), ("k", K), ("v", K))))
    flash(tape, SPEC, heads, Context(None, T * T))
    line = next(line for line in tape.lines() if line.op == "attention" and line.phase == "forward")
    assert line.work.bytes_read == 4 * B * T * (H + 2 * K) * D_HEAD
    kept = {each.name: each.total_bytes for each in tape.activations()}
    assert (kept["q"], kept["k"], kept["v"]) == tuple(4 * B * T * n * D_HEAD for n in (H, K, K))


def test_one_key_value_head_is_repeated_without_a_copy():
    kept, _ = _walked(replace(SPEC, attention=AttentionSpec(H, 1)), "fused")
    assert kept["k"] == kept["v"] == 4 * B * T * 1 * D_HEAD


def test_it_keeps_a_mask_where_it_is_given_one():
    assert "mask" not in _walked(SPEC, "fused")[0]
    assert _walked(SPEC, "fused", mask=True)[0]["mask"] == 4 * T * T


def test_math_attention_keeps_scaled_queries_keys_values_and_weights():
    kept, lines = _walked(SPEC, "math", mask=True)
    size = 4 * B * T * H * D_HEAD
    assert kept == {
        "core.query · scale": size,
        "core.query · scale: number": 8,
        "core.key": size,
        "core.value": size,
        "core.attention weights": 4 * B * H * T * T,
    }
    products = [line.op for line in lines if line.kind == "attention" and line.phase == "forward"]
    assert products == ["attention_scores", "attention_values"]


def test_one_sequence_of_full_heads_is_read_in_place():
    """With batch 1 heads and positions merge without a copy: keys and values are kept where the projection put them."""
    kept, _ = _walked(replace(SPEC, attention=AttentionSpec(H)), "math", batch=1)
    assert {"k", "v"} <= set(kept)
    assert "core.key" not in kept


def test_normed_queries_are_cast_back_under_autocast():
    kept, lines = _walked(SPEC, "math", precision="bf16", queries="fp32")
    assert kept["core.attention_scores operand"] == 2 * B * T * H * D_HEAD
    assert {line.number_format for line in lines if line.kind == "attention"} == {"bf16"}


@pytest.mark.parametrize(
    ("attention", "takes"),
    [
        (AttentionSpec(H), True),
        (AttentionSpec(H, dropout=0.1), False),
        (AttentionSpec(H, kind="latent", plain_head_size=4, rotary_head_size=4, value_head_size=8), True),
        (AttentionSpec(H, kind="latent", plain_head_size=4, rotary_head_size=4, value_head_size=6), False),
    ],
)
def test_the_fused_kernel_takes_no_dropout_and_no_narrower_values(attention, takes):
    assert has_fused_kernel(replace(SPEC, attention=attention)) is takes


@pytest.mark.parametrize(
    ("attention", "why"),
    [
        (AttentionSpec(H), ""),
        (AttentionSpec(H, logit_soft_cap=50.0), "soft-cap"),
        (AttentionSpec(H, dropout=0.1), "dropout"),
        (AttentionSpec(H, kind="latent", plain_head_size=4, rotary_head_size=4, value_head_size=6), "as wide as keys"),
    ],
)
def test_scores_are_kept_for_the_reason_that_is_told(attention, why):
    """A reason is told exactly where fused attention was asked for and [B·H, T, T] weights are kept all the same."""
    spec = replace(SPEC, attention=attention)
    assert why in why_scores_are_kept(spec)
    if attention.kind == "standard":
        kept, _ = _walked(spec, "fused")
        assert ("core.attention weights" in kept) is bool(why_scores_are_kept(spec)) is bool(why)


def test_what_it_does_not_take_runs_in_fp32_and_keeps_the_dropout_mask():
    spec = replace(SPEC, attention=AttentionSpec(H, K, dropout=0.1))
    kept, lines = _walked(spec, "fused", precision="bf16", queries="bf16")
    square = 4 * B * H * T * T
    assert kept["core.attention weights"] == kept["core.attention weights dropout mask"] == square
    assert kept["core.attention weights after dropout"] == square
    assert {line.number_format for line in lines if line.kind == "attention"} == {"fp32"}


def test_a_soft_cap_forces_the_scores_to_be_written():
    spec = replace(SPEC, attention=AttentionSpec(H, K, logit_soft_cap=50.0))
    kept, _ = _walked(spec, "fused", mask=True)
    assert kept["core.scores tanh"] == 4 * B * H * T * T
