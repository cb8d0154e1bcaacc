"""What would fit, found without tracing every micro-batch and without taking the memory that is not there."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from torchledger.cli import prediction
from torchledger.cli.looked import look
from torchledger.cli.prediction import (
    Prediction,
    _formats,
    _peak_bytes,
    _probed,
    disagreement,
    what_would_fit,
)
from torchledger.formula import count
from torchledger.ledger import Ledger, Line, Work
from torchledger.machine.profile import MachineProfile
from torchledger.meter import Scratch
from torchledger.planner import Rates, step_time
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


def _predicted(flops_per_s):
    """A prediction of a traced step in FP8, by rates that are given."""
    recipe = Recipe(batch_size=8, sequence_length=16, num_tokens=1280, precision="fp8")
    trace = look(TINY, recipe)
    rates = Rates(flops_per_s, ((1.0, 1e9),))
    setup = SimpleNamespace(
        spec=TINY, recipe=recipe, epochs=1.0, ranks=SimpleNamespace(size=1), device=SETUP.device,
        config=SimpleNamespace(initial_weights=None, async_checkpoint=False),
    )  # fmt: skip
    profile = MachineProfile("chip", 1, "", "", {"bf16": ((1, 1e9),)})
    time = step_time(trace.ledger.folded(), rates)
    return Prediction(setup, count(TINY, recipe), trace, Scratch(), profile, time, free_bytes=0)


def test_seconds_with_an_unknown_part_are_unknown():
    """Without a rate for FP8 nothing that follows from seconds is told but the least a step takes; with one, all is."""
    rates = dict.fromkeys(("fp32", "bf16"), ((1.0, 1e9),))
    figures = _predicted(rates).figures
    assert [figures[key] for key in ("step_s", "tokens_per_s", "mfu", "run_s")] == [None] * 4
    assert figures["untimed_ops"] == ["matmul"]
    assert figures["least_step_s"] > 0
    whole = _predicted({**rates, "fp8": ((1.0, 1e6),)}).figures
    assert whole["untimed_ops"] == []
    assert whole["step_s"] == whole["least_step_s"] > figures["least_step_s"]
    assert whole["run_s"] == 10 * whole["step_s"]  # 1,280 tokens are 10 steps of 8 · 16
    assert whole["tokens_per_s"] == 8 * 16 / whole["step_s"]


def test_the_rate_of_fp8_on_a_cpu_is_measured():
    """FP8's rate is measured beside that of bf16, in which its attention runs; on a GPU that of its product alone."""
    assert _formats("fp8", SETUP.device) == ("bf16", "fp8")
    assert _formats("fp8", torch.device("cuda")) == _formats("bf16", SETUP.device) == ("bf16",)


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
