"""Eager CUDA by arithmetic and by the trace for that target: contractions line by line, kept bytes to the last one."""

from dataclasses import replace

import pytest
import torch
from architectures import BY_NAME, SPECS

from torchledger.formula import count, memory, parts
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, Recipe, presets
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

CONTRACTIONS = {"matmul", "attention"}


def _traced(spec, recipe, *, stored=None):
    """The step traced for CUDA; with `stored` its parameters are in that format and autocast is off."""

    def step():
        run, batch = build_step(spec, recipe, initialized=False), example_batch(recipe)
        if stored is not None:
            for parameter in run.model.parameters():
                parameter.data = parameter.data.to(stored)
        return lambda: run(batch, 0)

    return trace_step(step, target="cuda")


def _kept(trace):
    """Activations, and the casts of weights that autocast's cache made and a gradient needs."""
    blocks = [block for block in trace.timeline.blocks if block.call >= trace.first_call]
    begins = min(block.allocated for block in blocks if block.phase == "backward")
    casts = [block for block in blocks if block.part == "autocast casts" and block.allocated < begins]
    kept = [block for block in casts if block.freed is None or block.freed >= begins]
    return trace.kept_bytes + sum(block.num_bytes for block in kept)


def _contractions(ledger):
    accounts = ledger.folded().where(kind=CONTRACTIONS).accounts()
    return {account: (work.flops_full, work.flops_executed) for account, work in accounts.items()}


def _told(spec, recipe):
    """FLOPs of each account and kept bytes by formula."""
    return _contractions(count(spec, recipe, kernels="cuda")), memory(spec, recipe, kernels="cuda").activation_bytes


def _found(trace):
    """The same by the trace."""
    return _contractions(trace.ledger), _kept(trace)


@BY_NAME
def test_the_zoo_of_small_models_agrees(spec):
    """Every architecture in FP32 and under autocast, with attention written out and fused, with recompute."""
    for precision, attention, recompute in (
        ("fp32", "fused", "none"),
        ("bf16", "math", "none"),
        ("bf16", "fused", "full"),
    ):
        recipe = Recipe(batch_size=2, sequence_length=16, precision=precision, attention=attention, recompute=recompute)
        assert _told(spec, recipe) == _found(_traced(spec, recipe))


@pytest.mark.parametrize("placement", ["post", "residual"])
def test_norms_without_weights_write_fp32_under_autocast(placement):
    """A projected embedding enters in 16 bit; the first norm behind a layer's half makes the stream FP32."""
    norm = NormSpec("layer", affine=False, placement=placement)
    spec = ModelSpec("factored", 96, 16, 3, 32, AttentionSpec(4), MlpSpec(48), norm, embedding_size=20)
    recipe = Recipe(batch_size=2, sequence_length=16, precision="bf16")
    assert _told(spec, recipe) == _found(_traced(spec, recipe))


@pytest.mark.parametrize("spec", [spec for spec in SPECS if spec.moe is None], ids=lambda spec: spec.name)
def test_weights_in_16_bit_have_a_stream_in_16_bit_and_no_casts(spec):
    recipe = Recipe(batch_size=2, sequence_length=16, precision="bf16-pure")
    assert _told(spec, recipe) == _found(_traced(spec, replace(recipe, precision="fp32"), stored=torch.bfloat16))


@pytest.mark.parametrize("name", ["gpt2", "gemma-2-2b", "qwen-3-0.6b", "bloom-560m"])
@pytest.mark.parametrize("precision", ["bf16", "bf16-pure"])
def test_presets_at_their_widths_agree(name, precision):
    spec = replace(presets.get(name), num_layers=2)
    recipe = Recipe(batch_size=2, sequence_length=40, precision=precision)
    pure = precision == "bf16-pure"
    trace = _traced(
        spec, replace(recipe, precision="fp32") if pure else recipe, stored=torch.bfloat16 if pure else None
    )
    assert _told(spec, recipe) == _found(trace)


@pytest.mark.parametrize(
    ("name", "precision", "recompute", "vocab_size"),
    [
        ("gpt2", "bf16", "none", None),
        ("qwen-3-0.6b", "bf16-pure", "full", None),
        ("qwen-3-0.6b", "bf16-pure", "none", 1000),
        ("gpt2", "bf16", "full", 1000),
    ],
)
def test_the_peak_is_the_traces_but_for_a_layers_own_gradients(name, precision, recompute, vocab_size):
    """Tensors of the trace at its peak, and at most the gradients of the fullest part more; never below them by 1 %."""
    spec = replace(presets.get(name), num_layers=3)
    spec = spec if vocab_size is None else replace(spec, vocab_size=vocab_size)
    recipe = Recipe(batch_size=4, sequence_length=256, precision=precision, recompute=recompute)
    pure = precision == "bf16-pure"
    stored = torch.bfloat16 if pure else None
    peak = _traced(spec, replace(recipe, precision="fp32") if pure else recipe, stored=stored).peak()
    tensors = sum(size for part, size in peak.by_part().items() if part not in {"workspace", "inside the kernel"})
    own = max(sum(each.num_bytes for each in part.parameters if each.tied_to is None) for part in parts(spec, recipe))
    assert 0.99 * tensors <= memory(spec, recipe, kernels="cuda").peak_bytes <= tensors + own
