"""Models drawn over every field of a spec: formula and trace agree on FLOPs by account and on every kept byte."""

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from torchledger.formula import count, memory, num_parameters
from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    OptimizerSpec,
    PositionSpec,
    Recipe,
    check,
)
from torchledger.tracer import trace_step
from torchledger.trainer.step import build_step, example_batch

CONTRACTIONS = {"matmul", "attention"}


def attentions():
    standard = st.builds(
        lambda groups, K, size, bias, norm, cap, windows, dropout: AttentionSpec(
            groups * K,
            K,
            head_size=4 * size,
            query_bias=bias,
            output_bias=bias,
            query_key_norm=norm,
            logit_soft_cap=cap,
            window_pattern=windows,
            dropout=dropout,
        ),
        st.integers(1, 3),
        st.integers(1, 2),
        st.integers(1, 4),
        st.booleans(),
        st.sampled_from(["none", "head", "full"]),
        st.sampled_from([None, 30.0]),
        st.sampled_from([(), (3,), (4, 0)]),
        st.sampled_from([0.0, 0.1]),
    )
    latent = st.builds(
        lambda H, query, rank, rotary, plain, value: AttentionSpec(
            H,
            kind="latent",
            query_rank=query,
            key_value_rank=rank,
            rotary_head_size=2 * rotary,
            plain_head_size=plain,
            value_head_size=value,
        ),
        st.integers(1, 3),
        st.sampled_from([0, 5]),
        st.integers(1, 6),
        st.integers(1, 2),
        st.integers(1, 4),
        st.integers(1, 6),
    )
    return st.one_of(standard, latent)


@st.composite
def specs(draw):
    """Small models over every field that changes what runs."""
    attention = draw(attentions())
    moe = draw(
        st.none()
        | st.builds(
            MoeSpec,
            st.integers(2, 4),
            st.integers(1, 2),
            st.integers(1, 9),
            st.sampled_from([3, 7]),
            st.booleans(),
            st.just(0),
            router_bias=st.booleans(),
            scoring=st.sampled_from(["softmax", "sigmoid"]),
            normalize_weights=st.booleans(),
        )
    )
    kind = "rotary" if attention.kind == "latent" else draw(st.sampled_from(["rotary", "alibi", "learned", "none"]))
    parallel = attention.kind == "standard" and moe is None and draw(st.booleans())
    placement = "pre" if parallel else draw(st.sampled_from(["pre", "post", "sandwich", "residual"]))
    kind_of_norm, affine = draw(st.sampled_from(["rms", "layer"])), draw(st.booleans())
    norm = NormSpec(
        kind_of_norm,
        affine=affine,
        bias=affine and kind_of_norm == "layer" and draw(st.booleans()),
        unit_offset=affine and draw(st.booleans()),
        placement=placement,
        shared=parallel and draw(st.booleans()),
        final=draw(st.booleans()),
    )
    gated, bias = draw(st.booleans()), draw(st.booleans())
    return ModelSpec(
        "drawn",
        draw(st.integers(2, 40)),
        16,
        draw(st.integers(2, 3)),
        2 * draw(st.integers(1, 8)),
        attention,
        MlpSpec(
            draw(st.integers(1, 12)),
            "gated" if gated else "plain",
            draw(st.sampled_from(["silu", "gelu", "gelu_tanh", "relu", "relu_squared"])),
            up_bias=bias,
            down_bias=draw(st.booleans()),
        ),
        norm,
        PositionSpec(kind, rotary_fraction=1.0 if attention.kind == "latent" else draw(st.sampled_from([1.0, 0.5]))),
        moe,
        parallel=parallel,
        tied_embeddings=draw(st.booleans()),
        head_bias=draw(st.booleans()),
        embedding_norm=draw(st.booleans()),
        embedding_scale=draw(st.booleans()),
        embedding_size=draw(st.sampled_from([None, 5])),
        final_logit_soft_cap=draw(st.sampled_from([None, 30.0])),
    )


recipes = st.builds(
    lambda rows, steps, length, precision, attention, recompute, optimizer: Recipe(
        batch_size=rows * steps,
        sequence_length=length,
        precision=precision,
        attention=attention,
        recompute=recompute,
        accumulation_steps=steps,
        optimizer=optimizer,
    ),
    st.integers(1, 3),
    st.integers(1, 2),
    st.integers(1, 9),
    st.sampled_from(["fp32", "bf16"]),
    st.sampled_from(["math", "fused"]),
    st.sampled_from(["none", "full"]),
    st.builds(
        OptimizerSpec,
        st.sampled_from(["adamw", "sgd"]),
        st.sampled_from(["fused", "foreach", "loop"]),
        momentum=st.sampled_from([0.0, 0.9]),
    ),
)


def _contractions(ledger):
    return {
        account: (work.flops_full, work.flops_executed)
        for account, work in ledger.where(kind=CONTRACTIONS).balance().items()
    }


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs(), recipes)
def test_formula_and_trace_agree_on_every_account_and_every_kept_byte(spec, recipe):
    told, found = _told_and_found(spec, recipe)
    assert told == found


@pytest.mark.proof
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(specs(), recipes)
def test_they_agree_on_hundreds(spec, recipe):
    told, found = _told_and_found(spec, recipe)
    assert told == found


def _told_and_found(spec, recipe):
    """FLOPs of each account, kept bytes and bytes of each part, by formula and by the trace."""
    assume(not check.mistakes(spec))

    def step():
        run, batch = build_step(spec, recipe, initialized=False), example_batch(recipe)
        return lambda: run(batch, 0)

    trace, formula, prediction = trace_step(step), count(spec, recipe), memory(spec, recipe)
    held = trace.timeline.live_at(trace.timeline.num_events)
    parts = {
        "parameters": prediction.parameter_bytes,
        "buffers": prediction.buffer_bytes,
        "optimizer state": prediction.optimizer_state_bytes,
    }
    told = {
        "FLOPs": _contractions(formula),
        "kept, by the ledger": formula.total.bytes_kept,
        "kept, by the prediction": prediction.activation_bytes * recipe.accumulation_steps,
        "bytes of FP32 parameters": 4 * num_parameters(spec),
        **parts,
    }
    found = {
        "FLOPs": _contractions(trace.ledger.folded()),
        "kept, by the ledger": trace.kept_bytes,
        "kept, by the prediction": trace.kept_bytes,
        "bytes of FP32 parameters": prediction.parameter_bytes,
        **{part: sum(block.num_bytes for block in held if block.part == part) for part in parts},
    }
    return told, found
