"""One small model of every architecture, for tests that hold a formula to what really runs."""

from dataclasses import replace

import pytest

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec

BIASES = {"query_bias": True, "key_bias": True, "value_bias": True, "output_bias": True}
LATENT = AttentionSpec(
    4, kind="latent", query_rank=12, key_value_rank=16, rotary_head_size=4, plain_head_size=8, value_head_size=6
)
PLAIN = MlpSpec(80, "plain", "gelu_tanh", up_bias=True, down_bias=True)
LAYER = NormSpec("layer", bias=True)


def _spec(name, attention, mlp=MlpSpec(80), **other):  # noqa: B008 - frozen
    return ModelSpec(name, 97, 64, 3, 32, attention, mlp, **other)


GEMMA = {"norm": NormSpec(unit_offset=True, placement="sandwich"), "embedding_scale": True, "tied_embeddings": True}
SPECS = (
    _spec("llama", AttentionSpec(4, 2)),
    _spec("mqa", AttentionSpec(4, 1)),
    _spec(
        "gpt2", AttentionSpec(4, **BIASES), PLAIN, norm=LAYER, position=PositionSpec("learned"), tied_embeddings=True
    ),
    _spec(
        "opt",
        AttentionSpec(4, **BIASES),
        replace(PLAIN, activation="relu"),
        norm=replace(LAYER, placement="residual"),
        position=PositionSpec("learned", offset=2),
        embedding_size=16,
    ),
    _spec("bloom", AttentionSpec(4), PLAIN, norm=LAYER, position=PositionSpec("alibi"), embedding_norm=True),
    _spec(
        "neox",
        AttentionSpec(4),
        replace(PLAIN, activation="gelu"),
        norm=LAYER,
        position=PositionSpec(rotary_fraction=0.25),
        parallel=True,
    ),
    _spec(
        "phi",
        AttentionSpec(4),
        replace(PLAIN, activation="relu_squared"),
        norm=replace(LAYER, shared=True),
        position=PositionSpec(rotary_fraction=0.5),
        parallel=True,
        head_bias=True,
    ),
    _spec(
        "gemma 2",
        AttentionSpec(4, 2, head_size=16, logit_soft_cap=50.0, window_pattern=(8, 0)),
        MlpSpec(80, activation="gelu_tanh"),
        final_logit_soft_cap=30.0,
        **GEMMA,
    ),
    _spec(
        "gemma 3",
        AttentionSpec(4, 2, head_size=16, query_key_norm="head", window_pattern=(8, 8, 0)),
        MlpSpec(80, activation="gelu_tanh"),
        position=PositionSpec(local_theta=100.0),
        **GEMMA,
    ),
    _spec("olmo 1", AttentionSpec(4, clip=8.0), norm=NormSpec("layer", affine=False)),
    _spec("olmo 2", AttentionSpec(4, query_key_norm="full"), norm=NormSpec(placement="post")),
    _spec("dropout", AttentionSpec(4, 2, dropout=0.1)),
    _spec(
        "deepseek",
        LATENT,
        moe=MoeSpec(5, 3, 24, 16, num_leading_dense_layers=1, router_bias=True, scoring="sigmoid"),
    ),
    _spec("qwen moe", AttentionSpec(4, 2), moe=MoeSpec(5, 2, 24, 32, shared_gate=True, every=2)),
)
BY_NAME = pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
