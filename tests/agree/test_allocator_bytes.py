"""Predicted on no memory, measured in the allocator: the peak of a full training step, byte for byte on this machine.

The prediction runs the trainer's step on fake tensors and adds what each kernel was probed to hold inside. The truth is
every allocation and free that torch's profiler sees while the same step runs for real, from the making of the model.
"""

import itertools
from dataclasses import replace

import pytest

from torchledger.formula import memory as formula_memory
from torchledger.meter import allocations, probe
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, OptimizerSpec, PositionSpec, Recipe
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

LLAMA = ModelSpec(
    name="small llama",
    vocab_size=512,
    max_sequence_length=64,
    num_layers=2,
    hidden_size=64,
    attention=AttentionSpec(num_heads=4, num_key_value_heads=2),
    mlp=MlpSpec(intermediate_size=172),
)
GPT = ModelSpec(
    name="small gpt",
    vocab_size=384,
    max_sequence_length=64,
    num_layers=2,
    hidden_size=64,
    attention=AttentionSpec(num_heads=4, query_bias=True, key_bias=True, value_bias=True, output_bias=True),
    mlp=MlpSpec(intermediate_size=256, kind="plain", activation="gelu_tanh", up_bias=True, down_bias=True),
    norm=NormSpec(kind="layer", bias=True),
    position=PositionSpec(kind="learned"),
    tied_embeddings=True,
)


def _recipe(*choices):
    precision, implementation, attention, recompute, accumulation = choices
    return Recipe(
        batch_size=4,
        sequence_length=64,
        precision=precision,
        attention=attention,
        recompute=recompute,
        accumulation_steps=accumulation,
        optimizer=OptimizerSpec(implementation=implementation),
    )


CONFIGURATIONS = [
    pytest.param(spec, _recipe(*choices), id=name)
    for spec, *choices in [
        *((s, p, i, "fused", "none", 1) for s, p, i in itertools.product((LLAMA, GPT), ("fp32", "bf16"), ("fused",))),
        *((LLAMA, p, i, "math", "none", 1) for p, i in itertools.product(("fp32", "bf16"), ("loop", "foreach"))),
        *((s, p, "fused", "math", "full", 1) for s, p in itertools.product((LLAMA, GPT), ("fp32", "bf16"))),
        (GPT, "bf16", "foreach", "fused", "none", 2),
        (LLAMA, "fp32", "loop", "fused", "full", 2),
    ]
    for name in ["-".join(map(str, (spec.name.split()[1], *choices)))]
]


def _two_steps(spec, recipe):
    step, batch = build_step(spec, recipe), example_batch(recipe)
    for number in range(2):
        step(batch, number)


def _predicted(spec, recipe):
    def build():
        step, batch, numbers = build_step(spec, recipe, initialized=False), example_batch(recipe), itertools.count()
        return lambda: step(batch, next(numbers))

    trace = trace_step(build)
    scratch = probe(call.signature for call in trace.calls)
    assert scratch.skipped == {}
    return trace.timeline.peak(internal=scratch.by_call(trace)).peak_bytes


@pytest.mark.parametrize(("spec", "recipe"), CONFIGURATIONS)
def test_tensors_and_probed_scratch_are_the_allocators_peak(spec, recipe):
    """Tensor bytes from the trace plus probed kernel scratch equal the allocator's true peak, to the byte."""
    predicted_bytes = _predicted(spec, recipe)
    _two_steps(spec, recipe)  # oneDNN and the allocator's reporter make their own one-time allocations first
    assert predicted_bytes == allocations(lambda: _two_steps(spec, recipe)).peak_bytes


@pytest.mark.parametrize("precision", ["fp32", "bf16-pure"])
def test_where_little_is_trained_the_fullest_moment_can_be_the_drawing_of_first_values(precision):
    """Adapters of rank 1 on one short sequence: formula, trace and allocator know that drawing holds most."""
    spec = replace(LLAMA, vocab_size=4096, tied_embeddings=True)
    recipe = Recipe(sequence_length=4, precision=precision, lora_rank=1)
    assert formula_memory(spec, recipe).peak.name == "drawing of the first values"
    predicted_bytes = _predicted(spec, recipe)
    assert formula_memory(spec, recipe).peak_bytes <= predicted_bytes  # a few scalars of kernels less
    _two_steps(spec, recipe)
    assert predicted_bytes == allocations(lambda: _two_steps(spec, recipe)).peak_bytes


def test_the_proof_is_wide():
    """At least 12 configurations: both precisions, all AdamW kernels, both attentions, recompute, accumulation."""
    recipes = [parameter.values[1] for parameter in CONFIGURATIONS]
    assert len(recipes) >= 12
    assert {recipe.precision for recipe in recipes} == {"fp32", "bf16"}
    assert {recipe.optimizer.implementation for recipe in recipes} == {"fused", "loop", "foreach"}
    assert {recipe.attention for recipe in recipes} == {"fused", "math"}
    assert {recipe.recompute for recipe in recipes} == {"none", "full"}
    assert {recipe.accumulation_steps for recipe in recipes} == {1, 2}
