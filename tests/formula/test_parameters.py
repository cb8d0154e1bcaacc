import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.formula.parameters import (
    Parameter,
    layer_parameters,
    num_active_parameters,
    num_embedding_parameters,
    num_parameters,
    num_prediction_parameters,
    parameters,
)
from torchledger.ledger import fold_path
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, MoeSpec, NormSpec, PositionSpec, Recipe, presets

V, P, L, D, F, H = 101, 32, 3, 24, 40, 4


def model(**changes):
    """A small Llama, or with `changes`."""
    fields = {
        "name": "small",
        "vocab_size": V,
        "max_sequence_length": P,
        "num_layers": L,
        "hidden_size": D,
        "attention": AttentionSpec(H),
        "mlp": MlpSpec(F),
    }
    return ModelSpec(**{**fields, **changes})


def shapes(spec, **arguments):
    return {each.name: each.shape for each in parameters(spec, **arguments)}


LLAMA = 2 * V * D + L * (4 * D * D + 3 * D * F + 2 * D) + D


def test_a_llama_by_hand():
    """Embedding, head, four projections, three MLP matrices and two norms a layer, a final norm."""
    assert num_parameters(model()) == LLAMA
    assert [(each.name, each.shape, each.times) for each in parameters(model())] == [
        ("embedding.weight", (V, D), 1),
        ("layers.*.attention_norm.weight", (D,), L),
        ("layers.*.attention.query.weight", (D, D), L),
        ("layers.*.attention.key.weight", (D, D), L),
        ("layers.*.attention.value.weight", (D, D), L),
        ("layers.*.attention.output.weight", (D, D), L),
        ("layers.*.mlp_norm.weight", (D,), L),
        ("layers.*.mlp.gate.weight", (F, D), L),
        ("layers.*.mlp.up.weight", (F, D), L),
        ("layers.*.mlp.down.weight", (D, F), L),
        ("final_norm.weight", (D,), 1),
        ("head.weight", (V, D), 1),
    ]


def test_a_tied_head_is_named_and_not_counted():
    """A tied head is the embedding under a second name."""
    spec = model(tied_embeddings=True)
    assert num_parameters(spec) == LLAMA - V * D
    assert parameters(spec)[-1] == Parameter("head.weight", (V, D), tied_to="embedding.weight")


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"attention": AttentionSpec(H, query_bias=True)}, L * D),
        ({"attention": AttentionSpec(H, 1, key_bias=True, value_bias=True)}, L * (2 * 6 - 2 * D * (D - 6))),
        ({"attention": AttentionSpec(H, output_bias=True)}, L * D),
        ({"attention": AttentionSpec(H, head_size=8)}, L * 4 * D * (H * 8 - D)),
        ({"attention": AttentionSpec(H, query_key_norm="head")}, L * 2 * 6),
        ({"attention": AttentionSpec(H, 2, query_key_norm="full")}, L * (D + 12 - 2 * D * 12)),
        ({"mlp": MlpSpec(F, "plain")}, -L * D * F),
        ({"mlp": MlpSpec(F, up_bias=True)}, L * 2 * F),
        ({"mlp": MlpSpec(F, "plain", up_bias=True, down_bias=True)}, L * (F + D - D * F)),
        ({"norm": NormSpec("layer", bias=True)}, L * 2 * D + D),
        ({"norm": NormSpec("layer", affine=False)}, -(L * 2 * D + D)),
        ({"norm": NormSpec(placement="sandwich")}, L * 2 * D),
        ({"norm": NormSpec(placement="post")}, 0),
        ({"norm": NormSpec(placement="residual", final=False)}, -D),
        ({"norm": NormSpec(shared=True), "parallel": True}, -L * D),
        ({"parallel": True}, 0),
        ({"head_bias": True}, V),
        ({"embedding_norm": True, "norm": NormSpec("layer", bias=True)}, 2 * D + L * 2 * D + D),
        ({"embedding_size": 10}, 2 * (10 - D) * V + 2 * D * 10),
        ({"position": PositionSpec("learned")}, P * D),
        ({"position": PositionSpec("learned", offset=2)}, (P + 2) * D),
        ({"position": PositionSpec("learned", num_learned=50)}, 50 * D),
        ({"position": PositionSpec("alibi")}, 0),
        ({"attention": AttentionSpec(H, window_pattern=(8, 0))}, 0),
    ],
)
def test_each_part_adds_its_own(changes, more):
    """What a part of the spec adds to the plain model, by hand."""
    assert num_parameters(model(**changes)) == LLAMA + more


LATENT = AttentionSpec(
    H, kind="latent", query_rank=10, key_value_rank=8, plain_head_size=6, rotary_head_size=4, value_head_size=5
)


def test_latent_attention_by_hand():
    """MLA: a waist for queries, one for keys and values with the shared rotary key beside it, norms in the waists."""
    waists = 10 * D + 10 + H * (6 + 4) * 10 + (8 + 4) * D + 8 + H * (6 + 5) * 8 + D * H * 5
    assert num_parameters(model(attention=LATENT)) == LLAMA + L * (waists - 4 * D * D)
    assert shapes(model(attention=LATENT))["layers.*.attention.key_value_down.weight"] == (8 + 4, D)


def test_latent_attention_without_a_query_waist():
    """DeepSeek-V2-Lite projects its queries directly."""
    lite = AttentionSpec(H, kind="latent", key_value_rank=8, plain_head_size=6, rotary_head_size=4, value_head_size=5)
    assert shapes(model(attention=lite))["layers.*.attention.query.weight"] == (H * (6 + 4), D)
    assert not any("query_down" in name for name in shapes(model(attention=lite)))


MOE = MoeSpec(8, 2, 16, shared_intermediate_size=12, shared_gate=True, num_leading_dense_layers=1, router_bias=True)
DENSE, EXPERT, SHARED = 3 * D * F, 3 * D * 16, 3 * D * 12


def test_a_mixture_by_hand():
    """One dense layer, then a router, eight experts, a shared one and its gate."""
    by_hand = LLAMA - 2 * DENSE + 2 * (8 * D + 8 * EXPERT + SHARED + D)
    assert num_parameters(model(moe=MOE)) == by_hand
    assert num_active_parameters(model(moe=MOE)) == by_hand - 2 * (8 - 2) * EXPERT


def test_without_experts_every_parameter_is_active():
    """A dense model uses all of itself for every token."""
    assert num_active_parameters(model()) == LLAMA


def test_the_bias_that_balances_experts_is_named_and_not_counted():
    """The router's bias is moved by a rule, not by a gradient, and is in no published count."""
    bias = next(each for each in parameters(model(moe=MOE)) if each.name == "layers.*.mlp.router.bias")
    assert (bias.trainable, bias.total, bias.times) == (False, 0, 2)


def test_leading_layers_fold_apart_from_mixtures():
    """Attention is the same in all layers; the MLP of the first one is not."""
    times = {each.name: each.times for each in parameters(model(moe=MOE))}
    assert times["layers.*.attention.query.weight"] == L
    assert times["layers.*.mlp.up.weight"] == 1
    assert times["layers.*.mlp.experts.*.up.weight"] == (L - 1) * 8


def test_embedding_parameters_are_the_tables():
    """Tokens and positions are looked up; an untied head is multiplied with."""
    spec = model(position=PositionSpec("learned", offset=2))
    assert num_embedding_parameters(spec) == V * D + (P + 2) * D


def test_expanded_names_are_those_of_the_modules():
    """Expanded, every layer and expert has its number, in the order of the modules."""
    names = [each.name for each in parameters(model(moe=MOE), expand=True)]
    assert "layers.0.mlp.gate.weight" in names
    assert "layers.1.mlp.gate.weight" not in names
    first = names.index("layers.1.mlp.experts.0.gate.weight")
    assert names[first : first + 4] == [
        "layers.1.mlp.experts.0.gate.weight",
        "layers.1.mlp.experts.0.up.weight",
        "layers.1.mlp.experts.0.down.weight",
        "layers.1.mlp.experts.1.gate.weight",
    ]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_autocast_keeps_parameters_in_fp32(precision):
    """Under bf16 autocast the stored parameters, which the optimizer moves, are FP32: 4 bytes each."""
    rows = parameters(model(), Recipe(precision=precision))
    assert {each.number_format for each in rows} == {"fp32"}
    assert sum(each.num_bytes * each.times for each in rows) == 4 * LLAMA


def specs():
    """Any dense or mixed model with small sizes."""
    heads = st.sampled_from([(4, None), (4, 4), (4, 2), (4, 1)])
    flags = st.booleans()
    attention = st.builds(
        lambda pair, size, a, b, c, d, norm: AttentionSpec(
            *pair, size, query_bias=a, key_bias=b, value_bias=c, output_bias=d, query_key_norm=norm
        ),
        heads,
        st.sampled_from([None, 8, 16]),
        flags,
        flags,
        flags,
        flags,
        st.sampled_from(["none", "head", "full"]),
    )
    mlp = st.builds(MlpSpec, st.integers(1, 64), st.sampled_from(["gated", "plain"]), st.just("silu"), flags, flags)
    norm = st.builds(
        NormSpec,
        st.sampled_from(["rms", "layer"]),
        flags,
        flags,
        placement=st.sampled_from(["pre", "post", "sandwich", "residual"]),
        final=flags,
    )
    moe = st.builds(
        MoeSpec,
        st.integers(2, 5),
        st.integers(1, 2),
        st.integers(1, 9),
        st.sampled_from([0, 7]),
        num_leading_dense_layers=st.integers(0, 2),
        every=st.integers(1, 2),
        router_bias=flags,
    )
    return st.builds(
        model,
        num_layers=st.integers(1, 5),
        attention=st.one_of(attention, st.just(LATENT)),
        mlp=mlp,
        norm=norm,
        moe=st.none() | moe,
        position=st.sampled_from([PositionSpec(), PositionSpec("learned", offset=2), PositionSpec("alibi")]),
        tied_embeddings=flags,
        head_bias=flags,
        embedding_norm=flags,
        embedding_size=st.sampled_from([None, 8]),
    )


@given(specs())
def test_folding_is_the_expansion_counted(spec):
    """Folding the names of the expansion and counting equal ones gives the folded list, for any model."""
    counted = {}
    for each in parameters(spec, expand=True):
        key = (fold_path(each.name), each.shape, each.trainable, each.tied_to)
        counted[key] = counted.get(key, 0) + each.times
    folded = {(each.name, each.shape, each.trainable, each.tied_to): each.times for each in parameters(spec)}
    assert counted == folded


@given(specs())
def test_active_parameters_are_those_of_a_model_with_fewer_experts(spec):
    """A token meets as many parameters as a model has whose experts are only those it visits, but for the router."""
    if spec.moe is None:
        assert num_active_parameters(spec) == num_parameters(spec)
        return
    names = [each for each in parameters(spec, expand=True) if each.tied_to is None and each.trainable]
    met = [each for each in names if "experts." not in each.name or _expert(each.name) < spec.moe.experts_per_token]
    assert num_active_parameters(spec) == sum(math.prod(each.shape) for each in met)


def _expert(name):
    return int(name.partition("experts.")[2].partition(".")[0])


def test_sizes_may_be_symbols():
    """With symbols for sizes the count is the polynomial that a Llama's arithmetic gives."""
    sympy = pytest.importorskip("sympy")
    v, t, n, d, f, h, k, s = sympy.symbols("V T L D F H K d", positive=True, integer=True)
    spec = ModelSpec("symbolic", v, t, n, d, AttentionSpec(h, k, s), MlpSpec(f))
    by_hand = 2 * v * d + n * (2 * d * h * s + 2 * d * k * s + 3 * d * f + 2 * d) + d
    assert sympy.expand(num_parameters(spec) - by_hand) == 0
    assert num_embedding_parameters(spec) == v * d


def test_prediction_layers_are_trained_but_no_part_of_the_published_number():
    """DeepSeek-V3: 671B, and for training one layer more of 11.5B with a map [D, 2·D] and three norms."""
    published = presets.get("deepseek-v3")
    trained = replace(published, num_prediction_layers=1)
    assert num_parameters(trained) == num_parameters(published)
    mixture = sum(each.total for each in layer_parameters(published, is_moe=True))
    assert round(mixture / 1e9, 1) == 11.5
    assert num_prediction_parameters(trained) == mixture + 2 * 7168**2 + 3 * 7168
    every = sum(each.total for each in parameters(trained))
    assert every == num_parameters(published) + num_prediction_parameters(trained)
    assert sum(each.total for each in parameters(trained, expand=True)) == every
    assert num_prediction_parameters(published) == 0
