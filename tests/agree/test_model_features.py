"""What a recipe or a model can ask beyond the plain step: formula == trace == the recorder on real tensors, each."""

import itertools
from dataclasses import replace

import pytest
import torch
from architectures import SPECS

from torchledger.formula import count, memory
from torchledger.spec import Recipe
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.step import build_step, example_batch

BY_ID = {spec.name: spec for spec in SPECS}
PLAIN = Recipe(batch_size=4, sequence_length=16, accumulation_steps=2)
VARIANTS = [
    replace(PLAIN, precision=precision, attention=attention, recompute=recompute)
    for precision, attention, recompute in (("fp32", "math", "none"), ("bf16", "fused", "full"))
]
WHOLE = replace(VARIANTS[0], accumulation_steps=1)


def _build(spec, recipe):
    step, batch, numbers = build_step(spec, recipe, initialized=False), example_batch(recipe), itertools.count()
    return lambda: step(batch, next(numbers))


def _recorded(spec, recipe):
    """The same two steps on real tensors."""
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _build(spec, recipe)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    return recorder.trace(since="step 2")


def _contractions(ledger):
    """Full, exact and executed FLOPs of each account of matmuls and attention."""
    found = ledger.where(kind={"matmul", "attention"}).balance()
    return {account: (work.flops_full, work.flops_executed) for account, work in found.items()}


def _accounts(spec, recipe):
    """FLOPs of each account, kept bytes (by two ways), bytes of parts, the peak: by formula, by trace, by running."""
    torch.manual_seed(0)
    formula, prediction, trace = count(spec, recipe), memory(spec, recipe), trace_step(lambda: _build(spec, recipe))
    held = trace.timeline.live_at(trace.timeline.num_events)
    parts = [sum(block.num_bytes for block in held if block.part == part) for part in ("optimizer state", "parameters")]
    traced, recorded = (
        (_contractions(each.ledger.folded()), each.kept_bytes, each.kept_bytes, *parts, each.peak().peak_bytes)
        for each in (trace, _recorded(spec, recipe))
    )
    kept = formula.total.bytes_kept, prediction.activation_bytes * recipe.accumulation_steps
    states = prediction.optimizer_state_bytes, prediction.parameter_bytes
    peak = prediction.peak_bytes
    # An adapter's factor, 8 bytes, is let go of a moment later where its layer is about to run again.
    if recipe.lora_rank and recipe.recompute == "full":
        peak += min(8, max(0, traced[-1] - peak))
    return (_contractions(formula), *kept, *states, peak), traced, recorded


@pytest.mark.parametrize("recipe", VARIANTS, ids=lambda recipe: f"{recipe.precision}-{recipe.attention}")
@pytest.mark.parametrize("name", ["opt", "phi", "gemma 2", "dropout", "qwen moe"])
def test_dropout_of_the_residual_stream(name, recipe):
    """On the embedding and on what each branch adds; drawn again the same when a layer runs again."""
    formula, traced, recorded = _accounts(replace(BY_ID[name], dropout=0.1), recipe)
    assert formula == traced == recorded


@pytest.mark.parametrize("recipe", VARIANTS, ids=lambda recipe: f"{recipe.precision}-{recipe.attention}")
@pytest.mark.parametrize("chunk", [5, 100])
@pytest.mark.parametrize("name", ["phi", "gemma 2"])
def test_the_loss_in_pieces(name, chunk, recipe):
    """Pieces that divide the 32 tokens of a micro-batch, leave a rest, or are larger than all of them."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(recipe, loss_chunk=chunk))
    assert formula == traced == recorded


@pytest.mark.parametrize("recipe", VARIANTS, ids=lambda recipe: f"{recipe.precision}-{recipe.attention}")
@pytest.mark.parametrize("name", ["llama", "bloom", "gemma 3", "dropout"])
def test_documents_kept_apart(name, recipe):
    """A mask for each sequence, of every window, with slopes or without."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(recipe, document_mask=True))
    assert formula == traced == recorded


@pytest.mark.parametrize("recipe", [WHOLE, VARIANTS[1]], ids=["fp32-whole", "bf16-fused"])
@pytest.mark.parametrize("name", ["deepseek", "qwen moe"])
def test_a_load_balancing_loss(name, recipe):
    """Of softmax and of sigmoid scores, also where layers run again, and where no share of a micro-batch follows."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(recipe, load_balance=0.01))
    assert formula == traced == recorded


@pytest.mark.parametrize("recipe", VARIANTS, ids=lambda recipe: f"{recipe.precision}-{recipe.attention}")
@pytest.mark.parametrize("name", ["llama", "gpt2", "deepseek"])
def test_adapters(name, recipe):
    """They are the only thing that is trained, beside every linear layer of attention, MLP and experts."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(recipe, lora_rank=3))
    assert formula == traced == recorded


@pytest.mark.parametrize(
    ("name", "targets"),
    [("llama", ("query", "value")), ("gpt2", ("down",)), ("deepseek", ("query_up", "gate")), ("qwen moe", ("output",))],
)
def test_adapters_beside_some_layers(name, targets):
    """In the first layer nothing before the first adapter has a gradient, and keys without one get none."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(VARIANTS[0], lora_rank=3, lora_targets=targets))
    assert formula == traced == recorded


@pytest.mark.parametrize("trainable", [("head",), ("embedding",), ("layers.1",), ("layers.1-2", "head")], ids=str)
@pytest.mark.parametrize("name", ["gemma 2", "qwen moe"])
def test_frozen_parts(name, trainable):
    """What is frozen has no gradient, and before the first trained part nothing is kept."""
    formula, traced, recorded = _accounts(BY_ID[name], replace(VARIANTS[len(trainable) - 1], trainable=trainable))
    assert formula == traced == recorded


@pytest.mark.parametrize("recipe", VARIANTS, ids=lambda recipe: f"{recipe.precision}-{recipe.attention}")
@pytest.mark.parametrize("factor", [0.5, 1.5])
@pytest.mark.parametrize("name", ["deepseek", "qwen moe"])
def test_experts_of_a_fixed_capacity(name, factor, recipe):
    """Every expert computes as many rows, whatever the router chose."""
    spec = BY_ID[name]
    formula, traced, recorded = _accounts(replace(spec, moe=replace(spec.moe, capacity_factor=factor)), recipe)
    assert formula == traced == recorded


@pytest.mark.parametrize(
    ("name", "layers", "recipe"),
    [
        ("llama", 1, VARIANTS[0]),
        ("opt", 2, WHOLE),
        ("gemma 2", 1, VARIANTS[1]),
        ("deepseek", 2, replace(VARIANTS[0], load_balance=0.01)),
        ("phi", 1, replace(VARIANTS[1], loss_chunk=7)),
    ],
    ids=["llama", "opt", "gemma 2", "deepseek balanced", "phi in pieces"],
)
def test_layers_that_predict_further_tokens(name, layers, recipe):
    """Each reads what the one before it made and has a loss of its own; embedding and head are cast once for all."""
    formula, traced, recorded = _accounts(replace(BY_ID[name], num_prediction_layers=layers), recipe)
    assert formula == traced == recorded
