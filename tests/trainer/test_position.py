import math
from dataclasses import replace

import pytest
import torch

from torchledger.spec import PositionSpec, SpecError
from torchledger.trainer.position import Rotary, alibi_slopes, causal_mask, rotate


def test_rotation_turns_pairs_by_position(tiny):
    """Dimensions i and i + 4 of a head of 8 are a point in the plane, turned by position · theta^(-2i/8)."""
    x = torch.randn(1, 6, 2, 8, generator=torch.Generator().manual_seed(0))
    turned = rotate(x, Rotary(tiny, 100.0, {}, 6)(6))
    for position in range(6):
        for i in range(4):
            angle = position * 100.0 ** (-2 * i / 8)
            a, b = x[0, position, 1, i].item(), x[0, position, 1, i + 4].item()
            expected = (a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle))
            assert (turned[0, position, 1, i].item(), turned[0, position, 1, i + 4].item()) == pytest.approx(
                expected, abs=1e-5
            )


def test_products_depend_on_the_distance_only(tiny):
    """A query at 7 and a key at 3 have the same product as at 5 and 1 (RoFormer's property)."""
    tables = Rotary(tiny, 10000.0, {}, 8)(8)
    q, k = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    queries, keys = (rotate(v.repeat(1, 8, 1, 1), tables)[0, :, 0] for v in (q, k))
    torch.testing.assert_close(queries[7] @ keys[3], queries[5] @ keys[1])


def test_partial_rotation_leaves_the_rest(tiny):
    """With half of the dimensions rotated, the other half passes unchanged."""
    spec = replace(tiny, position=PositionSpec(rotary_fraction=0.5))
    x = torch.randn(1, 4, 1, 8)
    turned = rotate(x, Rotary(spec, 10000.0, {}, 4)(4))
    assert torch.equal(turned[..., 4:], x[..., 4:])
    assert not torch.allclose(turned[:, 1:, :, :4], x[:, 1:, :, :4])


def test_half_precision_is_rotated_in_float32(tiny):
    """A bfloat16 head is rotated in float32 and rounded once, at the end."""
    tables = Rotary(tiny, 10000.0, {}, 32)(32)
    x = torch.randn(1, 32, 1, 8).bfloat16()
    assert torch.equal(rotate(x, tables), rotate(x.float(), tables).bfloat16())


def test_tables_are_in_no_checkpoint(tiny):
    """Rotary tables follow from the spec and are not saved."""
    assert Rotary(tiny, 10000.0, {}, 8).state_dict() == {}


def test_linear_scaling_stretches_positions(tiny):
    """Position 6 scaled by 2 is where position 3 was."""
    plain, scaled = Rotary(tiny, 100.0, {}, 8), Rotary(tiny, 100.0, {"kind": "linear", "factor": 2.0}, 8)
    torch.testing.assert_close(scaled.cos[6], plain.cos[3])


def test_llama3_scaling_changes_only_long_wavelengths(tiny):
    """Dimensions that turn over 4 times within the old context stay; those below once are stretched by the factor."""
    head = replace(tiny, hidden_size=512)  # a head of 128
    scaling = {"kind": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192.0}
    plain, scaled = Rotary(head, 500000.0, {}, 2), Rotary(head, 500000.0, scaling, 2)
    frequencies = 500000.0 ** (-torch.arange(0, 128, 2) / 128)
    turns = 8192 * frequencies / (2 * math.pi)
    sines = torch.sin(frequencies / 8)
    assert torch.equal(scaled.sin[1, :64][turns > 4], plain.sin[1, :64][turns > 4])
    torch.testing.assert_close(scaled.sin[1, :64][turns < 1], sines[turns < 1])


def test_yarn_scaling_has_the_papers_amplitude(tiny):
    """Cosine at position 0 is 0.1·ln(factor) + 1 (arXiv:2309.00071, eq. 22); DeepSeek's ratio of two cancels it."""
    yarn = {"kind": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096.0}
    assert Rotary(tiny, 10000.0, yarn, 2).cos[0].tolist() == pytest.approx([0.1 * math.log(40) + 1] * 8)
    both = {**yarn, "mscale": 0.707, "mscale_all_dim": 0.707}
    assert Rotary(tiny, 10000.0, both, 2).cos[0].tolist() == pytest.approx([1.0] * 8)


def test_unknown_scaling_and_missing_factor_are_named(tiny):
    """An extension that is not built, or has no factor, is refused by name."""
    with pytest.raises(SpecError, match=r"position\.scaling: kind 'dynamic' is not built"):
        Rotary(tiny, 10000.0, {"kind": "dynamic", "factor": 2.0}, 8)
    with pytest.raises(SpecError, match="number under 'factor'"):
        Rotary(tiny, 10000.0, {"kind": "linear"}, 8)


@pytest.mark.parametrize(
    ("num_heads", "slopes"),
    [(8, [2.0**-i for i in range(1, 9)]), (3, [2.0**-4, 2.0**-8, 2.0**-2]), (1, [2.0**-8])],
)
def test_alibi_slopes_are_the_papers(num_heads, slopes):
    """For 8 heads 1/2 to 1/256; for another number those of the power of two below it, then the double's odd ones."""
    assert alibi_slopes(num_heads).tolist() == slopes


def test_masks_hide_the_future_and_what_is_beyond_the_window():
    """0 where a token may look, -inf elsewhere; with slopes, minus slope times distance."""
    x = torch.zeros(1)
    inf = math.inf
    assert causal_mask(3, 0, None, x, torch.float32)[0].tolist() == [[0, -inf, -inf], [0, 0, -inf], [0, 0, 0]]
    assert causal_mask(3, 2, None, x, torch.float32)[0].tolist() == [[0, -inf, -inf], [0, 0, -inf], [-inf, 0, 0]]
    alibi = causal_mask(3, 0, torch.tensor([1.0, 0.5]), x, torch.float32)
    assert alibi[1].tolist() == [[0, -inf, -inf], [-0.5, 0, -inf], [-1.0, -0.5, 0]]
