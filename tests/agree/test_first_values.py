"""Where first values come from changes no byte and no FLOP of a step: drawn, read, or with rates of their own."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from torchledger.formula import count
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe, load
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.step import build_step, example_batch

LLAMA = Path(__file__).parents[1] / "trainer" / "huggingface" / "llama"
SPEC = ModelSpec("small", 256, 32, 2, 32, AttentionSpec(4, 2), MlpSpec(88))
RECIPE = Recipe(batch_size=2, sequence_length=32, attention="math")


def traced(spec, recipe):
    def build():
        step, batch, numbers = build_step(spec, recipe, initialized=False), example_batch(recipe), itertools.count()
        return lambda: step(batch, next(numbers))

    return trace_step(build)


def recorded(spec, recipe, **options):
    """Two steps on real tensors, values and all."""
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = build_step(spec, recipe, **options)
        batch = example_batch(recipe)
        for number in (0, 1):
            recorder.mark(f"step {number}")
            step(batch, number)
    return recorder.trace(since="step 1")


def test_weights_that_were_read_cost_what_drawn_ones_do():
    """Steps on weights of a folder have the predicted peak of tensors to the byte: no file that was read is counted."""
    spec = load(LLAMA)
    recipe = replace(RECIPE, sequence_length=16)
    assert recorded(spec, recipe, weights=LLAMA).peak().peak_bytes == traced(spec, recipe).peak().peak_bytes


@pytest.mark.parametrize("implementation", ["fused", "foreach", "loop"])
@pytest.mark.parametrize("kind", ["adamw", "sgd", "lion"])
def test_groups_of_learning_rates_cost_nothing(kind, implementation):
    """With muP's groups formula, trace and real tensors give the contractions and the peak of a step without them."""
    optimizer = OptimizerSpec(kind=kind, implementation=implementation)
    plain = replace(RECIPE, optimizer=optimizer)
    mup = replace(plain, initialization="mup", mup_base_size=8)
    trace = traced(SPEC, mup)
    assert trace.peak().peak_bytes == traced(SPEC, plain).peak().peak_bytes == recorded(SPEC, mup).peak().peak_bytes
    assert trace.ledger.folded().flops == count(SPEC, mup).flops == count(SPEC, plain).flops
