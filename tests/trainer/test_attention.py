import math
from dataclasses import replace

import pytest
import torch

from torchledger.trainer.attention import Attention, Context, Core
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build
from torchledger.trainer.position import causal_mask


def attend_by_loops(query, key, value, scale, window=0):
    """One head, one token at a time."""
    out = torch.zeros(len(query), value.shape[-1])
    for i in range(len(query)):
        first = max(0, i - window + 1) if window else 0
        scores = torch.stack([query[i] @ key[j] * scale for j in range(first, i + 1)])
        weights = torch.exp(scores) / torch.exp(scores).sum()
        out[i] = sum(w * value[j] for w, j in zip(weights, range(first, i + 1), strict=True))
    return out


@pytest.fixture
def heads():
    """Queries of four heads and keys and values of two, of size 8."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((1, 6, 4, 8), (1, 6, 2, 8), (1, 6, 2, 8))
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


@pytest.mark.parametrize("kernel", ["math", "fused"])
@pytest.mark.parametrize("window", [0, 3])
def test_core_is_softmax_of_scaled_products(tiny, heads, kernel, window):
    """Each query head attends over its group's keys: heads 0 and 1 share key-value head 0, 2 and 3 share 1."""
    spec = replace(tiny, attention=replace(tiny.attention, num_key_value_heads=2))
    query, key, value = heads
    mask = None if kernel == "fused" and not window else causal_mask(6, window, None, query, torch.float32)
    out = Core(spec, kernel)(query, key, value, mask)
    expected = [
        attend_by_loops(query[0, :, h], key[0, :, h // 2], value[0, :, h // 2], 1 / math.sqrt(8), window)
        for h in range(4)
    ]
    torch.testing.assert_close(out[0], torch.cat(expected, dim=-1))


def test_soft_cap_bounds_the_scores(tiny, heads):
    """With a cap c scores become c·tanh(score / c), even when the fused kernel was asked for."""
    spec = replace(tiny, attention=replace(tiny.attention, num_key_value_heads=2, logit_soft_cap=0.5))
    core = Core(spec, "fused")
    query, key, value = heads
    out = core(query, key, value, causal_mask(6, 0, None, query, torch.float32))
    scores = 0.5 * torch.tanh(query[0, 5, 0] @ key[0, :, 0].T / math.sqrt(8) / 0.5)
    torch.testing.assert_close(out[0, 5, :8], scores.softmax(-1) @ value[0, :, 0])
    assert core.kernel == "math"


def test_core_is_marked_as_attention(tiny):
    """The ledger tells contractions of attention from matmuls with weights by this mark."""
    assert Core(tiny, "math").ledger_kind == "attention"


def test_clip_bounds_the_projections(tiny):
    """With clip, queries, keys and values are clamped after their projection."""
    model = build(replace(tiny, attention=replace(tiny.attention, clip=0.01)), attention="math")
    initialize(model, "fan_in", 0)
    seen = []
    attention = model.layers[0].attention
    attention.core.register_forward_pre_hook(lambda _m, inputs: seen.extend(inputs[:3]))
    x = torch.randn(1, 6, 32)
    attention(x, Context(causal_mask(6, 0, None, x, x.dtype), None))
    assert [t.abs().max().item() for t in seen] == pytest.approx([0.01] * 3)


def test_norms_of_heads_have_the_width_they_say(tiny):
    """`head` shares one weight of a head's size among heads, `full` has one for the whole projection."""
    for kind, widths in (("head", (8, 8)), ("full", (32, 16))):
        changed = replace(tiny.attention, query_key_norm=kind, num_key_value_heads=2)
        attention = Attention(replace(tiny, attention=changed), "math")
        assert (attention.query_norm.weight.numel(), attention.key_norm.weight.numel()) == widths


def test_dropout_only_in_training(tiny, heads):
    """Dropout changes the result in training mode and not in evaluation."""
    spec = replace(tiny, attention=replace(tiny.attention, num_key_value_heads=2, dropout=0.5))
    mask = causal_mask(6, 0, None, heads[0], torch.float32)
    core = Core(spec, "math")
    assert not torch.equal(core(*heads, mask), core(*heads, mask))
    core.eval()
    assert torch.equal(core(*heads, mask), core(*heads, mask))
