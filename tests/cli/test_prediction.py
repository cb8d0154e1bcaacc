"""What would fit, found without tracing every micro-batch and without taking the memory that is not there."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from torchledger.cli import prediction
from torchledger.cli.prediction import Prediction, _peak_bytes, _probed, disagreement, look, what_would_fit
from torchledger.formula import count
from torchledger.ledger import Ledger, Line, Work
from torchledger.meter import Scratch
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe
from torchledger.trainer.checkpoint import state_of
from torchledger.trainer.step import build_step, example_batch

TINY = ModelSpec("tiny", 64, 16, 2, 32, AttentionSpec(4), MlpSpec(64))
SETUP = SimpleNamespace(spec=TINY, device=torch.device("cpu"))


@pytest.mark.parametrize("recompute", ["none", "full"])
@pytest.mark.parametrize("accumulation_steps", [1, 2, 4, 8])
def test_the_peak_of_many_micro_batches_is_that_of_two(recompute, accumulation_steps):
    """The short cut gives the peak of the whole step, what kernels hold inside included, to the byte."""
    recipe = Recipe(batch_size=8, sequence_length=16, accumulation_steps=accumulation_steps)
    recipe = replace(recipe, recompute=recompute)
    trace = look(TINY, recipe)
    whole = trace.timeline.peak(internal=_probed(trace, SETUP.device, 2**40).by_call(trace))
    assert _peak_bytes(SETUP, recipe, 2**40) == whole.peak_bytes


def test_kernels_are_probed_only_where_their_operands_fit(monkeypatch):
    """A probe takes real memory: where the tensors alone are too many, none is run."""
    trace = look(TINY, Recipe(batch_size=8, sequence_length=16))
    peak_bytes = trace.peak().peak_bytes
    assert _probed(trace, SETUP.device, peak_bytes).internal_bytes
    monkeypatch.setattr(prediction, "probe", lambda *_, **__: pytest.fail("probed what does not fit"))
    assert not _probed(trace, SETUP.device, peak_bytes - 1).internal_bytes


def test_a_disagreement_names_the_account_and_the_gap():
    """One matmul more in the formula than in the trace is named with its FLOPs; equal ledgers say nothing."""
    recipe = Recipe(batch_size=8, sequence_length=16)
    trace, by_formula = look(TINY, recipe), count(TINY, recipe)
    assert disagreement(by_formula, trace) == ()
    extra = Ledger((Line("layers.*.extra", "matmul", Work.of_flops(12), "matmul"),))
    assert disagreement(by_formula + extra, trace) == ("layers.*.extra matmul forward fp32: formula +12 FLOPs",)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_checkpoint_beside_training_takes_its_state_once_more(device):
    """What is foretold of the copy is the bytes that the saver copies; on a CPU a run must have room for it."""
    recipe = Recipe(batch_size=8, sequence_length=16, num_tokens=1280)
    step = build_step(TINY, recipe)
    step(example_batch(recipe), 0)
    copied = sum(tensor.nbytes for tensor in state_of(step.model, step.optimizer).values())
    asked = SimpleNamespace(config=SimpleNamespace(async_checkpoint=True), device=torch.device(device))
    nothing = dict.fromkeys(("ledger", "profile", "time"))
    predicted = Prediction(setup=asked, trace=look(TINY, recipe), scratch=Scratch(), free_bytes=0, heap="", **nothing)
    assert predicted.copied_bytes == copied
    assert predicted.needed_bytes == predicted.peak.peak_bytes + (copied if device == "cpu" else 0)
    asked.config.async_checkpoint = False
    assert predicted.copied_bytes == 0


def test_what_would_fit_is_found_in_few_looks(monkeypatch):
    """Of the 121 divisors of 10 billion rows the first that fits is found by halving; that none does, by two looks."""
    looks = []

    def peak_bytes(_, recipe, __):
        looks.append(recipe)
        return recipe.micro_batch_size * (1 if recipe.recompute == "full" else 10)

    monkeypatch.setattr(prediction, "_peak_bytes", peak_bytes)
    setup = SimpleNamespace(recipe=Recipe(batch_size=10**10))
    assert what_would_fit(setup, 99).startswith("recipe.accumulation_steps=1250000000 recipe.recompute=none fits: 80")
    assert len(looks) <= 1 + 7
    assert what_would_fit(setup, 5).startswith("recipe.accumulation_steps=2000000000 recipe.recompute=full fits: 5")
    looks.clear()
    assert what_would_fit(setup, 0).startswith("the least is 1 bytes, with recipe.accumulation_steps=10000000000")
    assert len(looks) == 2
