"""Parameters in 16 bit, products in 8: FLOPs, kept bytes, state, master copies by formula, by trace, as they are."""

import itertools
from dataclasses import replace

import pytest
import torch
from architectures import BY_NAME, SPECS

from torchledger.formula import count, memory
from torchledger.spec import OptimizerSpec, Recipe
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.optimizer import load_optimizer_state, optimizer_state
from torchledger.trainer.step import build_step, example_batch

NARROW = ("bf16-master", "bf16-moments", "bf16-pure", "fp8")
CONTRACTIONS = {"matmul", "attention"}


def _recipe(precision, attention="math", **optimizer):
    return Recipe(
        batch_size=2,
        sequence_length=16,
        num_tokens=32 * 10,
        precision=precision,
        attention=attention,
        optimizer=OptimizerSpec(**optimizer),
    )


def _built(spec, recipe):
    step, numbers, batch = build_step(spec, recipe, initialized=False), itertools.count(), example_batch(recipe)
    return lambda: step(batch, next(numbers))


def _contractions(ledger):
    accounts = ledger.where(kind=CONTRACTIONS).accounts()
    return {account: (work.flops_full, work.flops_executed) for account, work in accounts.items()}


@BY_NAME
@pytest.mark.parametrize(("precision", "attention"), [("bf16-pure", "math"), ("bf16-master", "fused"), ("fp8", "math")])
def test_flops_and_kept_bytes_by_formula_are_the_traces(spec, precision, attention):
    """Of every architecture, line by line in the format of the products; the peak to the byte."""
    recipe = _recipe(precision, attention)
    trace, formula, told = trace_step(lambda: _built(spec, recipe)), count(spec, recipe), memory(spec, recipe)
    assert _contractions(formula) == _contractions(trace.ledger.folded())
    assert formula.total.bytes_kept == told.activation_bytes == trace.kept_bytes
    assert told.peak_bytes == trace.peak().peak_bytes


@pytest.mark.parametrize(
    ("spec", "changes"),
    [
        (SPECS[0], {"recompute": "full"}),
        (SPECS[2], {"recompute": "full"}),
        (SPECS[0], {"recompute": "selective"}),
        (SPECS[0], {"lora_rank": 4}),
        (SPECS[0], {"trainable": ("layers.2-2", "head")}),
        (replace(SPECS[0], num_prediction_layers=1), {}),
        (replace(SPECS[-1], moe=replace(SPECS[-1].moe, num_experts=4, intermediate_size=32)), {}),
    ],
    ids=["full", "full with biases", "selective", "adapters", "frozen", "prediction", "experts"],
)
def test_products_in_fp8_whatever_is_kept_trained_or_run_again(spec, changes):
    """Each product of the step by formula is one of the trace, those that a checkpoint runs again are told as such."""
    recipe = replace(_recipe("fp8"), **changes)
    trace, formula, told = trace_step(lambda: _built(spec, recipe)), count(spec, recipe), memory(spec, recipe)
    products = _contractions(formula)
    assert any("fp8" in account for account in products)
    assert products == _contractions(trace.ledger.folded())
    assert formula.total.bytes_kept == told.activation_bytes == trace.kept_bytes


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("kind", ["adamw", "sgd", "lion", "muon", "adafactor", "adamw-8bit"])
def test_state_and_master_copies_are_those_of_the_tensors_that_are_there(precision, kind):
    recipe = _recipe(precision, kind=kind, momentum=0.9 if kind == "sgd" else 0.0)
    step = build_step(SPECS[0], recipe)
    step(example_batch(recipe), 0)
    held = sum(t.untyped_storage().nbytes() for state in step.optimizer.state.values() for t in state.values())
    told = memory(SPECS[0], recipe)
    assert held == told.optimizer_state_bytes + told.master_bytes
    assert told.parameter_bytes == sum(p.untyped_storage().nbytes() for p in step.model.parameters())


@pytest.mark.parametrize("precision", NARROW)
def test_the_real_step_is_the_traced_one(precision):
    """The same blocks with place, size, birth and death, from the making of the model on; the same lines."""
    recipe = _recipe(precision)
    fake = trace_step(lambda: _built(SPECS[0], recipe))
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _built(SPECS[0], recipe)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    real = recorder.trace(since="step 2")
    assert fake.timeline.blocks == real.timeline.blocks
    assert fake.ledger.lines == real.ledger.lines


@pytest.mark.parametrize("precision", NARROW)
@pytest.mark.parametrize("kind", ["adamw", "muon", "adamw-8bit"])
def test_what_goes_out_comes_back_and_goes_on_bit_for_bit(precision, kind):
    """Weights and state of three steps put into another step: the next two losses and all tensors are the same."""
    ids = torch.randint(0, 97, (2, 17), generator=torch.Generator().manual_seed(0))
    batch = [(ids[:, :-1], ids[:, 1:])]
    recipe = _recipe(precision, kind=kind, learning_rate=1e-2)
    first, second = build_step(SPECS[0], recipe), build_step(SPECS[0], recipe)
    for number in range(3):
        first(batch, number)
    second.model.load_state_dict(first.model.state_dict())
    state = {name: t.clone() for name, t in optimizer_state(first.model, first.optimizer).items()}
    load_optimizer_state(second.model, second.optimizer, state)
    losses = [[step(batch, number).loss.item() for number in (3, 4)] for step in (first, second)]
    assert losses[0] == losses[1]
    after = [optimizer_state(step.model, step.optimizer) for step in (first, second)]
    assert after[0].keys() == after[1].keys()
    assert all(torch.equal(after[0][name], after[1][name]) for name in after[0])
    assert any(name.endswith(".master") for name in state) == (precision in {"bf16-master", "fp8"})
