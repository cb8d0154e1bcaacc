"""On no memory and on real tensors the recorder sees the same: every storage, in the same order, to the byte."""

import itertools

import pytest

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, NormSpec, OptimizerSpec, PositionSpec, Recipe
from torchledger.tracer import Recorder, trace_step
from torchledger.trainer.step import build_step, example_batch

LLAMA = ModelSpec(
    name="small llama",
    vocab_size=256,
    max_sequence_length=32,
    num_layers=2,
    hidden_size=32,
    attention=AttentionSpec(num_heads=4, num_key_value_heads=2),
    mlp=MlpSpec(intermediate_size=88),
)
GEMMA = ModelSpec(
    name="small gemma",
    vocab_size=256,
    max_sequence_length=32,
    num_layers=2,
    hidden_size=32,
    attention=AttentionSpec(num_heads=4, num_key_value_heads=2, logit_soft_cap=50.0, window_pattern=(8, 0)),
    mlp=MlpSpec(intermediate_size=88, activation="gelu_tanh"),
    norm=NormSpec(unit_offset=True, placement="sandwich"),
    tied_embeddings=True,
    embedding_scale=True,
    final_logit_soft_cap=30.0,
)
BLOOM = ModelSpec(
    name="small bloom",
    vocab_size=256,
    max_sequence_length=32,
    num_layers=2,
    hidden_size=32,
    attention=AttentionSpec(num_heads=4, query_bias=True, key_bias=True, value_bias=True, output_bias=True),
    mlp=MlpSpec(intermediate_size=128, kind="plain", activation="gelu", up_bias=True, down_bias=True),
    norm=NormSpec(kind="layer", bias=True),
    position=PositionSpec(kind="alibi"),
    embedding_norm=True,
    tied_embeddings=True,
)
CHOICES = list(itertools.product(("fp32", "bf16"), ("loop", "foreach", "fused"), ("math", "fused"), ("none", "full")))
CONFIGURATIONS = [
    *((LLAMA, *choices, 1) for choices in CHOICES),
    (GEMMA, "bf16", "fused", "math", "full", 2),
    (GEMMA, "fp32", "foreach", "math", "none", 1),
    (BLOOM, "bf16", "loop", "fused", "none", 2),
    (BLOOM, "fp32", "fused", "fused", "full", 1),
]


def _recipe(precision, implementation, attention, recompute, accumulation_steps):
    return Recipe(
        batch_size=2,
        sequence_length=32,
        precision=precision,
        attention=attention,
        recompute=recompute,
        accumulation_steps=accumulation_steps,
        optimizer=OptimizerSpec(implementation=implementation),
    )


def _build(spec, recipe):
    step, batch, numbers = build_step(spec, recipe, initialized=False), example_batch(recipe), itertools.count()
    return lambda: step(batch, next(numbers))


def _recorded(spec, recipe):
    """The same two steps under the recorder on real tensors."""
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _build(spec, recipe)
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    return recorder.trace(since="step 2")


def _strided(signature):
    """Operation, and each tensor with the strides that mean something: that of a dimension of size 1 is arbitrary."""
    tensors = [
        (meta.shape, [stride for size, stride in zip(meta.shape, meta.stride, strict=True) if size != 1], meta.dtype)
        for meta in signature.tensors()
    ]
    return signature.op, tensors


@pytest.mark.parametrize(
    ("spec", "choices"),
    [pytest.param(spec, choices, id="-".join(map(str, (spec.name, *choices)))) for spec, *choices in CONFIGURATIONS],
)
def test_fake_and_real_recordings_are_the_same(spec, choices):
    """Timeline (every block with its place, size, part, birth and death), ledger and parameters are equal."""
    recipe = _recipe(*choices)
    fake, real = trace_step(lambda: _build(spec, recipe)), _recorded(spec, recipe)
    assert fake.timeline.blocks == real.timeline.blocks
    assert fake.timeline == real.timeline
    assert [_strided(call.signature) for call in fake.calls] == [_strided(call.signature) for call in real.calls]
    assert fake.ledger.lines == real.ledger.lines
    assert fake.num_parameters == real.num_parameters


def test_the_proof_is_wide():
    """At least 12 configurations: precision x optimizer x attention x recompute in full."""
    assert len({tuple(choices) for _, *choices in CONFIGURATIONS}) >= 24
