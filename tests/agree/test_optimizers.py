"""Every optimizer: state, peak and FLOPs by formula, by the trace, and of the tensors that are really there."""

import itertools

import pytest
import torch

from torchledger.formula import count, memory
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.step import build_step, example_batch

SPEC = ModelSpec("small", 97, 64, 3, 96, AttentionSpec(4, 2), MlpSpec(128))
KINDS = ("adamw", "sgd", "lion", "muon", "adafactor", "adamw-8bit")
BY_KIND = pytest.mark.parametrize("kind", KINDS)


def _recipe(kind, **other):
    optimizer = OptimizerSpec(kind, momentum=0.9 if kind == "sgd" else 0.0)
    return Recipe(batch_size=2, sequence_length=16, num_tokens=32 * 10, optimizer=optimizer, **other)


def _built(recipe):
    step, numbers, batch = build_step(SPEC, recipe, initialized=False), itertools.count(), example_batch(recipe)
    return lambda: step(batch, next(numbers))


def _recorded(recipe):
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _built(recipe)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    return recorder.trace(since="step 2")


@BY_KIND
def test_state_bytes_are_those_of_the_tensors_that_are_there(kind):
    recipe = _recipe(kind)
    step = build_step(SPEC, recipe)
    step(example_batch(recipe), 0)
    tensors = [t for state in step.optimizer.state.values() for t in state.values()]
    held = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
    assert memory(SPEC, recipe).optimizer_state_bytes == held


@BY_KIND
def test_the_real_step_is_the_traced_one(kind):
    """The same blocks with place, size, birth and death; the same lines; model FLOPs are the formula's."""
    recipe = _recipe(kind)
    fake, real = trace_step(lambda: _built(recipe)), _recorded(recipe)
    assert fake.timeline.blocks == real.timeline.blocks
    assert fake.ledger.lines == real.ledger.lines
    assert count(SPEC, recipe).flops == fake.ledger.flops == real.ledger.flops


@BY_KIND
def test_the_formulas_peak_is_the_traces(kind):
    recipe = _recipe(kind)
    assert memory(SPEC, recipe).peak_bytes == trace_step(lambda: _built(recipe)).peak().peak_bytes


def test_the_products_of_muon_are_no_model_flops():
    """Five iterations on each matrix of a layer, of n x m (n the shorter): 2·n²·m + 2·n³ + 2·n²·m each."""
    recipe = _recipe("muon")
    products = [line for line in trace_step(lambda: _built(recipe)).ledger if line.kind == "linalg"]
    D, F, K = 96, 128, 48  # hidden, inner, key-value width
    layer = [(D, D), (D, D), (K, D), (K, D), (D, F), (D, F), (D, F)]
    expected = sum(5 * (4 * n * n * m + 2 * n**3) for n, m in layer)
    sums = sum(5 * (2 * n * n + 2 * n * m) for n, m in layer)  # b·A + c·A², a·X + B·X: the scaled and added operands
    traced = sum(line.work.flops_full * line.times for line in products)
    assert traced in range(3 * expected, 3 * (expected + 2 * sums) + 1)
    formula = sum(line.work.flops_full * line.times for line in count(SPEC, recipe) if line.kind == "linalg")
    assert formula == 3 * (expected + sum(5 * (3 * n * n + 2 * n * m) for n, m in layer))


@BY_KIND
def test_the_loss_falls_on_one_batch(kind):
    """Ten updates on the same batch take at least a tenth of the loss away."""
    ids = torch.randint(0, 97, (2, 17), generator=torch.Generator().manual_seed(0))
    rate = {"sgd": 0.3, "adafactor": 0.1}.get(kind, 1e-2)
    optimizer = OptimizerSpec(kind, learning_rate=rate, momentum=0.9 if kind == "sgd" else 0.0)
    step = build_step(SPEC, Recipe(batch_size=2, sequence_length=16, num_tokens=320, optimizer=optimizer))
    losses = [step([(ids[:, :-1], ids[:, 1:])], number).loss.item() for number in range(10)]
    assert losses[-1] < 0.9 * losses[0]
