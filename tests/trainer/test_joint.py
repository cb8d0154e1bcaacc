"""Queries, keys and values by one product under autocast are those of three, in value and in gradient."""

from dataclasses import replace

import pytest
import torch

from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec
from torchledger.trainer import attention as attending
from torchledger.trainer.attention import Attention, Context
from torchledger.trainer.joint import is_joint

D, SIZE = 32, 8
SPEC = ModelSpec("small", 61, 16, 1, D, AttentionSpec(4, num_key_value_heads=2), MlpSpec(64))
BIASED = replace(SPEC, attention=replace(SPEC.attention, query_bias=True, key_bias=True, value_bias=True))


def _made(spec):
    torch.manual_seed(0)
    attention = Attention(spec, "fused")
    for parameter in attention.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return attention


def _results(attention, x):
    """The output, and the gradients of the input and of every parameter."""
    with torch.autocast("cpu", torch.bfloat16):
        y = attention(x, Context(None, None))
    own = dict(attention.named_parameters())
    given = torch.autograd.grad(y.float().square().sum(), [x, *own.values()])
    return {"output": y, **dict(zip(["input", *own], given, strict=True))}


@pytest.mark.parametrize("spec", [SPEC, BIASED], ids=["plain", "biased"])
def test_one_product_gives_what_three_give(spec, monkeypatch):
    """To the rounding of BF16 (2^-8 of the largest), for two key-value heads of four, each name its own gradient."""
    attention, x = _made(spec), torch.randn(2, 16, D, requires_grad=True)
    joint = _results(attention, x)
    monkeypatch.setattr(attending, "is_joint", lambda *_: False)
    apart = _results(attention, x)
    assert joint.keys() == apart.keys()
    for name, each in apart.items():
        # A bias of all keys moves no softmax: its gradient is what roundings of the weight's leave over.
        size = apart["key.weight" if name == "key.bias" else name].abs().max()
        assert (joint[name] - each).abs().max() <= 4 * 2**-8 * size, name


def test_a_map_with_an_adapter_or_a_bias_of_its_own_stands_apart():
    """All run as one, or none; and without autocast none."""
    attention, x = _made(SPEC), torch.zeros(1, 1, D)
    maps = (attention.query, attention.key, attention.value)
    assert not is_joint(x, maps)
    with torch.autocast("cpu", torch.bfloat16):
        assert is_joint(x, maps)
        mixed = _made(replace(SPEC, attention=replace(SPEC.attention, query_bias=True)))
        assert not is_joint(x, (mixed.query, mixed.key, mixed.value))
        attention.value.adapt(2)
        assert not is_joint(x, maps)
