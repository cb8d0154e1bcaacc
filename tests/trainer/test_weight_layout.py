from dataclasses import replace

import pytest
import torch

from torchledger.trainer.weight_layout import LAYOUTS


def test_heads_one_by_one_are_taken_apart(tiny):
    """Four heads of size 1 over two keys, stored q q k v, q q k v: queries 0 1 4 5, keys 2 6, values 3 7."""
    spec = replace(tiny, hidden_size=4, attention=replace(tiny.attention, num_key_value_heads=2))
    query, key, value = LAYOUTS["head_by_head"].split(spec, torch.arange(8), (4, 2, 2))
    assert (query.tolist(), key.tolist(), value.tolist()) == ([0, 1, 4, 5], [2, 6], [3, 7])


def test_neighbours_that_turn_together_become_halves(tiny):
    """Of a head of 6 whose first 4 rows turn as (0 1)(2 3), ours has 0 2 | 1 3, and the rest stays."""
    position = replace(tiny.position, rotary_fraction=4 / 6)
    spec = replace(tiny, position=position, attention=replace(tiny.attention, num_heads=2, head_size=6))
    (ours,) = LAYOUTS["interleaved"].split(spec, torch.arange(12), (12,))
    assert ours.tolist() == [0, 2, 1, 3, 4, 5, 6, 8, 7, 9, 10, 11]


@pytest.mark.parametrize("name", LAYOUTS)
def test_there_and_back_moves_no_number(name, tiny):
    """Joining what was split gives the stored tensor bit for bit, weights and biases."""
    latent = replace(
        tiny.attention, kind="latent", key_value_rank=12, rotary_head_size=4, plain_head_size=8, value_head_size=6
    )
    spec = replace(tiny, attention=latent) if name.startswith("interleaved_") else tiny
    rows = {"head_by_head": (32, 32, 32), "one_after_another": (32, 16, 16), "interleaved_end": (16,)}.get(name, (48,))
    for shape in ((sum(rows), 5), (sum(rows),)):
        ours = [torch.randn(n, *shape[1:]) for n in rows] if name != "interleaved" else [torch.randn(32, *shape[1:])]
        stored = LAYOUTS[name].join(spec, ours)
        again = LAYOUTS[name].split(spec, stored, [len(each) for each in ours])
        assert all(torch.equal(a, b) for a, b in zip(ours, again, strict=True))
