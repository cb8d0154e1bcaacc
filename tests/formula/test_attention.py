"""Attention around its core: projections, norms, rotation, latents."""

from dataclasses import replace

import pytest

from torchledger.formula.attention import attention, latent_attention, rotated
from torchledger.formula.core import Context
from torchledger.formula.tape import Tape
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, PositionSpec, Recipe

B, T, D, H, K = 2, 6, 32, 4, 2
SPEC = ModelSpec("s", 50, 64, 1, D, AttentionSpec(H, K), MlpSpec(16))
LATENT = AttentionSpec(
    H, kind="latent", query_rank=12, key_value_rank=16, rotary_head_size=4, plain_head_size=8, value_head_size=12
)


def _walked(walk, spec, precision="fp32"):
    tape = Tape(precision)
    x = tape.make("x", (B, T, D), "fp32")
    y = walk(tape, spec, Recipe(precision=precision), x, Context(None, T * T))
    assert y.shape == (B, T, D)
    lines = list(tape.lines())
    return {each.name: each for each in tape.activations()}, lines


def _matmuls(lines):
    return {line.module: line.work.flops_full for line in lines if (line.kind, line.phase) == ("matmul", "forward")}


def test_four_projections_have_the_widths_of_their_heads():
    _, lines = _walked(attention, SPEC)
    d = D // H
    assert _matmuls(lines) == {
        "query": 2 * B * T * D * H * d,
        "key": 2 * B * T * D * K * d,
        "value": 2 * B * T * D * K * d,
        "output": 2 * B * T * H * d * D,
    }


def test_heads_wider_than_hidden_over_heads_widen_the_projections():
    _, lines = _walked(attention, replace(SPEC, attention=AttentionSpec(H, K, head_size=16)))
    assert _matmuls(lines)["query"] == 2 * B * T * D * H * 16


@pytest.mark.parametrize(("kind", "rows"), [("head", B * T * H), ("full", B * T)])
def test_queries_are_normed_by_head_or_as_a_whole(kind, rows):
    spec = replace(SPEC, attention=AttentionSpec(H, K, query_key_norm=kind))
    kept, _ = _walked(attention, spec)
    assert kept["query_norm: 1/root mean square"].total_bytes == 4 * rows
    assert kept["query_norm: normalized"].total_bytes == 4 * B * T * D


def test_clipping_keeps_the_projections():
    kept, _ = _walked(attention, replace(SPEC, attention=AttentionSpec(H, K, clip=8.0)))
    assert {"query: output", "key: output", "value: output"} <= set(kept)


def test_rotation_computes_in_fp32_and_answers_in_the_format_of_its_input():
    for number_format in ("fp32", "bf16"):
        tape = Tape("bf16")
        x = tape.make("x", (B, T, H, 8), number_format)
        assert rotated(tape, SPEC, "query", x).number_format == number_format
        (line,) = [line for line in tape.lines() if line.op == "rotary" and line.phase == "forward"]
        assert (line.number_format, line.work.flops_full) == ("fp32", 3 * B * T * H * 8)
        assert tape.activations() == ()


def test_a_part_of_a_head_is_rotated_and_joined_with_the_rest():
    tape = Tape("fp32")
    x = tape.make("x", (B, T, H, 8), "fp32")
    spec = replace(SPEC, position=PositionSpec(rotary_fraction=0.5))
    assert rotated(tape, spec, "query", x).shape == (B, T, H, 8)
    ops = {line.op: line.work.flops_full for line in tape.lines() if line.phase == "forward"}
    assert ops == {"rotary": 3 * B * T * H * 4, "concatenate": 0}


def test_nothing_is_rotated_without_rotary_positions():
    tape = Tape("fp32")
    x = tape.make("x", (B, T, H, 8), "fp32")
    assert rotated(tape, replace(SPEC, position=PositionSpec("alibi")), "query", x) is x


def test_latents_go_down_and_up_again():
    _, lines = _walked(latent_attention, replace(SPEC, attention=LATENT))
    assert _matmuls(lines) == {
        "query_down": 2 * B * T * D * 12,
        "query_up": 2 * B * T * 12 * H * (8 + 4),
        "key_value_down": 2 * B * T * D * (16 + 4),
        "key_value_up": 2 * B * T * 16 * H * (8 + 12),
        "output": 2 * B * T * H * 12 * D,
    }


def test_without_a_query_rank_queries_are_projected_at_once():
    _, lines = _walked(latent_attention, replace(SPEC, attention=replace(LATENT, query_rank=0)))
    assert _matmuls(lines)["query"] == 2 * B * T * D * H * (8 + 4)


def test_the_norm_of_a_latent_keeps_the_whole_down_projection_it_is_a_slice_of():
    kept, _ = _walked(latent_attention, replace(SPEC, attention=LATENT))
    assert kept["key_value_down: output"].total_bytes == 4 * B * T * (16 + 4)


def test_one_rotated_key_is_shared_by_all_heads():
    _, lines = _walked(latent_attention, replace(SPEC, attention=LATENT))
    rotations = [line.work.flops_full for line in lines if (line.op, line.phase) == ("rotary", "forward")]
    assert rotations == [3 * B * T * H * 4, 3 * B * T * 1 * 4]
