from dataclasses import replace

import pytest

from torchledger.spec import (
    AttentionSpec,
    MlpSpec,
    ModelSpec,
    MoeSpec,
    NormSpec,
    PositionSpec,
    SpecError,
    check,
    presets,
)

SPEC = ModelSpec("small", 100, 64, 4, 32, AttentionSpec(4), MlpSpec(64))
LATENT = AttentionSpec(4, kind="latent", key_value_rank=8, plain_head_size=6, rotary_head_size=4, value_head_size=6)


def places(**changes):
    return [place for place, _ in check.mistakes(replace(SPEC, **changes))]


@pytest.mark.parametrize("spec", presets.table(), ids=lambda spec: spec.name)
def test_every_preset_can_be(spec):
    """No preset has a mistake."""
    assert check.mistakes(spec) == []


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"vocab_size": 0}, "vocab_size"),
        ({"num_layers": -1}, "num_layers"),
        ({"attention": AttentionSpec(0)}, "attention.num_heads"),
        ({"attention": AttentionSpec(4, 0)}, "attention.num_key_value_heads"),
        ({"mlp": MlpSpec(0)}, "mlp.intermediate_size"),
        ({"hidden_size": 34}, "hidden_size"),
        ({"attention": AttentionSpec(4, 3)}, "attention.num_key_value_heads"),
        ({"attention": AttentionSpec(4, 8)}, "attention.num_key_value_heads"),
        ({"attention": AttentionSpec(4, key_value_rank=3)}, "attention.key_value_rank"),
        ({"attention": AttentionSpec(4, window_pattern=(8, -1))}, "attention.window_pattern[1]"),
        ({"attention": AttentionSpec(4, window_pattern=(8,) * 5)}, "attention.window_pattern"),
        ({"attention": AttentionSpec(4, dropout=1.0)}, "attention.dropout"),
        ({"dropout": 1.0}, "dropout"),
        ({"num_prediction_layers": -1}, "num_prediction_layers"),
        ({"moe": MoeSpec(4, 2, 8, capacity_factor=-1.0)}, "moe.capacity_factor"),
        ({"attention": AttentionSpec(4, logit_soft_cap=0.0)}, "attention.logit_soft_cap"),
        ({"attention": AttentionSpec(4, scale=-1.0)}, "attention.scale"),
        ({"attention": AttentionSpec(4, head_size=7)}, "attention.head_size"),
        ({"attention": replace(LATENT, key_value_rank=0)}, "attention.key_value_rank"),
        ({"attention": replace(LATENT, value_head_size=0)}, "attention.value_head_size"),
        ({"attention": replace(LATENT, rotary_head_size=0)}, "attention.rotary_head_size"),
        ({"attention": replace(LATENT, rotary_head_size=3)}, "attention.rotary_head_size"),
        ({"attention": replace(LATENT, query_bias=True)}, "attention.query_bias"),
        ({"attention": replace(LATENT, head_size=8)}, "attention.head_size"),
        ({"attention": replace(LATENT, num_key_value_heads=2)}, "attention.num_key_value_heads"),
        ({"attention": replace(LATENT, query_key_norm="head")}, "attention.query_key_norm"),
        ({"attention": replace(LATENT, clip=8.0)}, "attention.clip"),
        ({"attention": LATENT, "position": PositionSpec("none")}, "attention.rotary_head_size"),
        ({"position": PositionSpec(rotary_fraction=0.0)}, "position.rotary_fraction"),
        ({"position": PositionSpec(rotary_fraction=0.4)}, "position.rotary_fraction"),
        ({"position": PositionSpec(theta=0.0)}, "position.theta"),
        ({"position": PositionSpec("learned", num_learned=63)}, "position.num_learned"),
        ({"position": PositionSpec("alibi", num_learned=64)}, "position.num_learned"),
        ({"position": PositionSpec(offset=2)}, "position.offset"),
        ({"norm": NormSpec(epsilon=0.0)}, "norm.epsilon"),
        ({"norm": NormSpec(bias=True)}, "norm.bias"),
        ({"norm": NormSpec("layer", affine=False, bias=True)}, "norm.bias"),
        ({"norm": NormSpec(affine=False, unit_offset=True)}, "norm.unit_offset"),
        ({"norm": NormSpec(shared=True)}, "norm.shared"),
        ({"norm": NormSpec(placement="post"), "parallel": True}, "norm.placement"),
        ({"embedding_size": 32}, "embedding_size"),
        ({"final_logit_soft_cap": 0.0}, "final_logit_soft_cap"),
        ({"moe": MoeSpec(4, 5, 8)}, "moe.experts_per_token"),
        ({"moe": MoeSpec(4, 0, 8)}, "moe.experts_per_token"),
        ({"moe": MoeSpec(4, 2, 8, shared_gate=True)}, "moe.shared_gate"),
        ({"moe": MoeSpec(4, 2, 8, num_leading_dense_layers=4)}, "moe"),
        ({"moe": MoeSpec(4, 2, 8, every=5)}, "moe"),
    ],
)
def test_a_mistake_is_found_at_its_field(changes, place):
    """Each impossible value is one mistake, told at the path of its field."""
    assert places(**changes) == [place]


def test_all_mistakes_are_told_at_once():
    """A spec with three mistakes raises one error that has all three."""
    spec = replace(
        SPEC, attention=AttentionSpec(4, 3), norm=NormSpec(epsilon=-1.0), moe=MoeSpec(2, 3, 8), embedding_size=8
    )
    with pytest.raises(SpecError) as raised:
        check.require(spec)
    first, *lines = str(raised.value).splitlines()
    assert first == "small: 3 mistakes"
    assert [line.strip().split(":")[0] for line in lines] == [
        "attention.num_key_value_heads",
        "norm.epsilon",
        "moe.experts_per_token",
    ]


def test_impossible_sizes_hide_no_mistake_that_stands_by_itself():
    """No head and a negative dropout are both told; whether 64 is divisible by no heads is not."""
    spec = replace(SPEC, attention=AttentionSpec(0), dropout=-0.5, norm=NormSpec(epsilon=0.0))
    assert [path for path, _ in check.mistakes(spec)] == ["attention.num_heads", "dropout", "norm.epsilon"]


def test_one_mistake_is_one_line():
    """A single mistake stands on one line, with the model's name and what would do."""
    with pytest.raises(SpecError, match=r"^small: attention.num_key_value_heads: 3 does not divide num_heads 4; .*$"):
        check.require(replace(SPEC, attention=AttentionSpec(4, 3)))


def test_a_model_that_can_be_passes():
    """Nothing happens to a model without mistakes."""
    assert check.require(SPEC) is None
    assert check.require(replace(SPEC, attention=LATENT)) is None
