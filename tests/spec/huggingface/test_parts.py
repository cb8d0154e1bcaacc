import pytest

from torchledger.spec import AttentionSpec
from torchledger.spec.huggingface.keys import Keys
from torchledger.spec.huggingface.parts import activation, attention, head_size, rotary, windows_by_layer


def keys(**given):
    return Keys({"num_attention_heads": 4, "hidden_size": 32, **given}, {"rope_theta": 10000.0}, "here")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, AttentionSpec(4)),
        ({"num_key_value_heads": 4, "head_dim": 8}, AttentionSpec(4)),
        ({"num_key_value_heads": 2, "head_dim": 16}, AttentionSpec(4, 2, 16)),
    ],
)
def test_what_follows_is_left_to_follow(given, expected):
    """A config that says what follows anyway gives the same model as one that does not."""
    assert attention(keys(**given)) == expected


def test_the_head_size_is_said_or_follows():
    """It follows from hidden size and heads where the config does not say it."""
    assert head_size(keys()) == 32 // 4
    assert head_size(keys(head_dim=16)) == 16


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("swish", "silu"),
        ("gelu", "gelu"),
        ("gelu_new", "gelu_tanh"),
        ("gelu_fast", "gelu_tanh"),
        ("relu2", "relu_squared"),
    ],
)
def test_activations_have_many_names(name, meant):
    """One activation has several names in transformers."""
    assert activation(keys(hidden_act=name)) == meant


@pytest.mark.parametrize(
    ("windowed", "pattern"),
    [
        ([True, False] * 3, (8, 0)),
        ([True] * 4, (8,)),
        ([False] * 4, ()),
        ([False, True, True], (0, 8, 8)),
        ([True, True, False, True, True], (8, 8, 0)),
    ],
)
def test_windows_are_the_shortest_pattern(windowed, pattern):
    """The pattern is the shortest one that, repeated, gives every layer its window."""
    assert windows_by_layer(keys(sliding_window=8), windowed) == pattern


def test_the_config_may_name_the_layers_with_a_window():
    """`layer_types` is stronger than the architecture's rule; no window at all is none."""
    kinds = ["full_attention", "sliding_attention"] * 2
    assert windows_by_layer(keys(sliding_window=8, layer_types=kinds), [True] * 4) == (0, 8)
    assert windows_by_layer(keys(layer_types=kinds), [True] * 4) == ()


def test_local_bases_are_read_where_they_are_used():
    """Layers with a window have a base of their own in Gemma 3 alone."""
    given = {"rope_parameters": {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}}
    assert rotary(keys(**given), local=True).local_theta == 1e4
    assert rotary(keys(**given)).local_theta is None
    assert rotary(keys(**given)).theta == 1e6


def test_lists_of_factors_are_left_out():
    """LongRoPE's lists change no size; its name and numbers are kept."""
    scaling = {"type": "longrope", "short_factor": [1.0, 2.0], "factor": 4}
    assert rotary(keys(rope_scaling=scaling)).scaling == {"kind": "longrope", "factor": 4.0}
    assert rotary(keys(rope_scaling={"rope_type": "default"})).scaling == {}
