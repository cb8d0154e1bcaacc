"""Peaks by formula are those of the trace, to the byte: of forward and backward pass, of the update, of the whole."""

import itertools

import pytest
from architectures import SPECS
from drawn import questions
from hypothesis import HealthCheck, assume, given, settings

from torchledger.formula import memory
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, OptimizerSpec, Recipe, SpecError, check
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def _traced(spec, recipe):
    def build():
        step, numbers, batch = build_step(spec, recipe, initialized=False), itertools.count(), example_batch(recipe)
        return lambda: step(batch, next(numbers))

    return trace_step(build)


def _of_phases(trace):
    """The most bytes alive in each phase of the second step; what runs again belongs to the backward pass."""
    curve, blocks, found = trace.timeline.curve(), trace.timeline.blocks, {}
    for block in blocks:
        if block.allocated >= trace.timeline.marks["step 2"]:
            phase = {"recompute": "backward"}.get(block.phase, block.phase)
            found[phase] = max(found.get(phase, 0), curve[block.allocated + 1])
    return found


def _traced_where_drawn(spec, recipe):
    """The trace of what was drawn, where it is a model and its step can be run."""
    assume(not check.mistakes(spec))
    try:
        return _traced(spec, recipe)
    except SpecError:  # nothing of the drawn model is trained, or there is no such kernel
        return assume(False)


def _told_and_found(spec, recipe, trace=None):
    """Bytes at the peak and at the fullest moment of each phase, by formula and by the trace."""
    trace = trace or _traced(spec, recipe)
    told, phases = memory(spec, recipe), _of_phases(trace)
    moments = {moment.name.partition(" ")[0]: moment.total_bytes for moment in told.moments}
    of_phases = {"forward": moments["forward"], "backward": moments["backward"]}
    if "optimizer" in phases:
        of_phases["optimizer"] = max(moments.get("clipping", 0), moments["optimizer"])
    found = {phase: phases[phase] for phase in of_phases}
    return (told.peak_bytes, of_phases), (trace.peak().peak_bytes, found)


@settings(max_examples=3, deadline=None, suppress_health_check=SLOW)
@given(questions())
def test_the_peak_by_formula_is_the_traced_one(question):
    told, found = _told_and_found(*question, _traced_where_drawn(*question))
    assert told == found


@pytest.mark.proof
@settings(max_examples=300, deadline=None, suppress_health_check=SLOW)
@given(questions())
def test_it_is_of_hundreds(question):
    told, found = _told_and_found(*question, _traced_where_drawn(*question))
    assert told == found


#: Some architectures stand for the others wherever proofs are left out.
OFTEN = {"llama", "gpt2", "gemma 2", "deepseek", "qwen moe"}
SOME = [pytest.param(s, id=s.name, marks=() if s.name in OFTEN else pytest.mark.proof) for s in SPECS]


@pytest.mark.parametrize("spec", SOME)
def test_of_every_architecture(spec):
    """BF16 under autocast, which makes most tensors, with AdamW's loop, whose temporaries overlap."""
    optimizer = OptimizerSpec(implementation="loop")
    told, found = _told_and_found(
        spec, Recipe(batch_size=2, sequence_length=16, precision="bf16", attention="fused", optimizer=optimizer)
    )
    assert told == found


@pytest.mark.parametrize("loss_chunk", [0, 16])
def test_the_bias_of_a_tied_head_is_trained_with_the_embedding(loss_chunk):
    """The formula gives it a gradient where the embedding alone is trained, as the trainer does."""
    spec = ModelSpec("biased", 100, 64, 2, 64, AttentionSpec(4), MlpSpec(40), tied_embeddings=True, head_bias=True)
    told, found = _told_and_found(
        spec, Recipe(batch_size=4, sequence_length=16, trainable=("embedding",), loss_chunk=loss_chunk)
    )
    assert told == found


@pytest.mark.parametrize("targets", [("up", "down"), pytest.param((), marks=pytest.mark.proof)])
def test_adapters_in_layers_that_run_again(targets):
    """Their factors, 8 bytes each, are gone when the gradient that follows has a layer run again."""
    recipe = Recipe(batch_size=2, sequence_length=8, recompute="full", lora_rank=2, lora_targets=targets)
    told, found = _told_and_found(SPECS[0], recipe)
    assert told == found


@pytest.mark.parametrize("kind", ["sgd", pytest.param("adamw", marks=pytest.mark.proof)])
@pytest.mark.parametrize("implementation", ["foreach", pytest.param("loop", marks=pytest.mark.proof)])
@pytest.mark.parametrize("base_size", [8, pytest.param(32, marks=pytest.mark.proof)])
def test_parameters_of_other_learning_rates_are_lists_of_their_own(kind, implementation, base_size):
    """At 4 times muP's base width and at it: what reads, maps and tells has a rate of SGD each, of Adam two of them."""
    optimizer = OptimizerSpec(kind, implementation, weight_decay=0.1)
    recipe = Recipe(batch_size=1, sequence_length=2, optimizer=optimizer, initialization="mup", mup_base_size=base_size)
    told, found = _told_and_found(SPECS[0], recipe)
    assert told == found


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
@pytest.mark.parametrize("implementation", ["fused", "foreach", "loop"])
def test_of_every_way_that_torch_updates(kind, precision, implementation):
    """One short sequence, so that the update is the fullest moment; fused SGD on 16 bit runs as a loop."""
    optimizer = OptimizerSpec(kind, implementation, weight_decay=0.1)
    told, found = _told_and_found(
        SPECS[0], Recipe(batch_size=1, sequence_length=2, precision=precision, optimizer=optimizer)
    )
    assert told == found
