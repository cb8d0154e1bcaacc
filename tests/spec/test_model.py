from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.spec import AttentionSpec, LayerGroup, MlpSpec, ModelSpec, MoeSpec, PositionSpec

SPEC = ModelSpec("small", 100, 64, 6, 32, AttentionSpec(4), MlpSpec(64))
LATENT = AttentionSpec(4, kind="latent", key_value_rank=8, plain_head_size=6, rotary_head_size=4, value_head_size=5)


def test_what_is_left_out_follows_from_the_rest():
    """Head size is the hidden size over the heads, key-value heads are the heads."""
    assert (SPEC.head_size, SPEC.value_head_size, SPEC.num_key_value_heads) == (32 // 4, 32 // 4, 4)


def test_latent_heads_have_two_parts_and_their_own_values():
    """An MLA head is its plain and rotary parts; its values have a size of their own; keys reach every head."""
    spec = replace(SPEC, attention=LATENT)
    assert (spec.head_size, spec.value_head_size, spec.num_key_value_heads, spec.rotary_size) == (6 + 4, 5, 4, 4)


@pytest.mark.parametrize(
    ("position", "size"),
    [
        (PositionSpec(), 8),
        (PositionSpec(rotary_fraction=0.25), 2),
        (PositionSpec("alibi"), 0),
        (PositionSpec("learned"), 0),
    ],
)
def test_how_much_of_a_head_is_rotated(position, size):
    """All of it, its fraction, or nothing without rotary positions."""
    assert replace(SPEC, position=position).rotary_size == size


@pytest.mark.parametrize(
    ("position", "rows"),
    [
        (PositionSpec(), 0),
        (PositionSpec("learned"), 64),
        (PositionSpec("learned", offset=2), 66),
        (PositionSpec("learned", num_learned=80, offset=2), 82),
    ],
)
def test_rows_of_the_position_table(position, rows):
    """As many as positions, with the offset before them."""
    assert replace(SPEC, position=position).num_position_rows == rows


def test_a_uniform_model_is_one_group():
    """Without windows or experts all layers are one group."""
    assert SPEC.layer_groups == (LayerGroup(0, False, 0, 6),)


def test_windows_and_leading_layers_make_groups():
    """Windows in the pattern (8, 8, 0) and one dense layer before the mixtures."""
    spec = replace(
        SPEC,
        attention=AttentionSpec(4, window_pattern=(8, 8, 0)),
        moe=MoeSpec(4, 2, 8, num_leading_dense_layers=1),
    )
    assert spec.layer_groups == (
        LayerGroup(8, False, 0, 1),
        LayerGroup(8, True, 1, 1),
        LayerGroup(0, True, 2, 1),
        LayerGroup(8, True, 3, 2),
        LayerGroup(0, True, 5, 1),
    )


@given(
    st.integers(1, 12),
    st.lists(st.sampled_from([0, 4, 8]), max_size=4),
    st.none() | st.tuples(st.integers(0, 4), st.integers(1, 3)),
)
def test_groups_are_the_layers_in_order(num_layers, pattern, mixture):
    """Laid out one by one, the groups are the layers, and neighbouring groups differ."""
    moe = None if mixture is None else MoeSpec(4, 2, 8, num_leading_dense_layers=mixture[0], every=mixture[1])
    attention = AttentionSpec(4, window_pattern=tuple(pattern))
    spec = replace(SPEC, num_layers=num_layers, attention=attention, moe=moe)
    groups = spec.layer_groups
    laid_out = [(g.window, g.is_moe) for g in groups for _ in range(g.count)]
    assert laid_out == [(spec.layer(i).window, spec.layer(i).is_moe) for i in range(num_layers)]
    assert all((a.window, a.is_moe) != (b.window, b.is_moe) for a, b in pairwise(groups))


def test_sizes_may_be_symbols():
    """A uniform model asks nothing of its sizes, so that symbols may stand for them."""
    sympy = pytest.importorskip("sympy")
    L, D, H = sympy.symbols("L D H", positive=True, integer=True)
    spec = replace(SPEC, num_layers=L, hidden_size=D, attention=AttentionSpec(H, head_size=D / H))
    assert spec.layer_groups[0].count == L
    assert spec.rotary_size == D / H
