"""What runs again and what is kept instead: formula, trace, and what the allocator's own events say."""

import itertools
from dataclasses import replace

import pytest
import torch
from architectures import BY_NAME, SPECS

from torchledger.formula import count, memory
from torchledger.ledger import HARDWARE_FLOPS
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.step import build_step, example_batch

CONTRACTIONS = {"matmul", "attention"}
DEEP = ModelSpec("deep", 97, 64, 5, 32, AttentionSpec(4, 2), MlpSpec(80))
WAYS = (
    {"recompute": "selective"},
    {"recompute": "full"},
    {"recompute": "full", "recompute_every": 2},
    {"recompute": "full", "recompute_every": 3},
    {"recompute": "full", "recompute_layers": 2},
    {"recompute": "full", "recompute_layers": 9},
)
ALL_WAYS = pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(map(str, way.values())))


def _recipe(way, precision="fp32", attention="math"):
    return Recipe(batch_size=2, sequence_length=16, precision=precision, attention=attention, **way)


def _built(spec, recipe, *, initialized=False):
    step, numbers = build_step(spec, recipe, initialized=initialized), itertools.count()
    batch = example_batch(recipe)
    return lambda: step(batch, next(numbers))


def _contractions(ledger):
    accounts = ledger.where(kind=CONTRACTIONS).accounts()
    return {account: (work.flops_full, work.flops_executed) for account, work in accounts.items()}


@ALL_WAYS
@pytest.mark.parametrize(("precision", "attention"), [("fp32", "math"), ("bf16", "fused")])
def test_flops_and_kept_bytes_by_formula_are_the_traces(way, precision, attention):
    recipe = _recipe(way, precision, attention)
    trace, formula = trace_step(lambda: _built(DEEP, recipe)), count(DEEP, recipe)
    assert _contractions(formula) == _contractions(trace.ledger.folded())
    assert formula.total.bytes_kept == trace.kept_bytes
    assert memory(DEEP, recipe).activation_bytes == trace.kept_bytes


@BY_NAME
def test_selective_recompute_of_every_architecture(spec):
    """Scores and softmax run again, nothing else: the core's products, once more."""
    recipe = _recipe({"recompute": "selective"})
    trace, formula = trace_step(lambda: _built(spec, recipe)), count(spec, recipe)
    assert _contractions(formula) == _contractions(trace.ledger.folded())
    assert formula.total.bytes_kept == trace.kept_bytes
    again = formula.under(HARDWARE_FLOPS).where(phase="recompute", kind=CONTRACTIONS)
    assert {line.kind for line in again} == {"attention"}


@ALL_WAYS
def test_the_real_step_holds_what_the_trace_holds(way):
    """Every block of the timeline, with its place, size, birth and death."""
    recipe = _recipe(way)
    fake = trace_step(lambda: _built(DEEP, recipe))
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _built(DEEP, recipe)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    real = recorder.trace(since="step 2")
    assert fake.timeline.blocks == real.timeline.blocks
    assert fake.ledger.lines == real.ledger.lines


@ALL_WAYS
@pytest.mark.parametrize("spec", [DEEP, SPECS[11], SPECS[12]], ids=lambda spec: spec.name)
def test_losses_are_those_without_recompute_bit_for_bit(spec, way):
    """Running again changes no bit, with dropout and latent attention too."""
    losses = []
    for recipe in (_recipe({}), _recipe(way)):
        torch.manual_seed(0)
        step = _built(spec, replace(recipe, num_tokens=32 * 4), initialized=True)
        losses.append([step().loss.item() for _ in range(3)])
    assert losses[0] == losses[1]


def test_the_less_runs_again_the_more_is_kept():
    """None keeps most, all layers least; every other layer and the core lie between."""
    kept = {str(way): memory(DEEP, _recipe(way)).activation_bytes for way in ({}, *WAYS)}
    full, every_second, all_of_them = (kept[str(WAYS[i])] for i in (1, 2, 5))
    assert full == all_of_them < every_second < kept["{}"]
    assert full < kept[str(WAYS[0])] < kept["{}"]


@ALL_WAYS
def test_the_formulas_peak_is_the_traces(way):
    recipe = _recipe(way)
    assert memory(DEEP, recipe).peak_bytes == trace_step(lambda: _built(DEEP, recipe)).peak().peak_bytes
