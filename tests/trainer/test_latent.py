from dataclasses import replace

import torch

from torchledger.spec import AttentionSpec
from torchledger.trainer.attention import Context
from torchledger.trainer.latent import LatentAttention
from torchledger.trainer.position import Rotary, causal_mask, rotate


def test_it_is_the_papers_equations(tiny):
    """Keys and values come from one latent per token and one rotated key shared by all heads (eqs. 37 to 47)."""
    attention = AttentionSpec(
        2, kind="latent", query_rank=0, key_value_rank=6, rotary_head_size=4, plain_head_size=8, value_head_size=5
    )
    spec = replace(tiny, attention=attention)
    module = LatentAttention(spec, "math")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(0, 0.3, generator=generator)
    x = torch.randn(1, 5, 32, generator=generator)
    tables = Rotary(spec, 10000.0, {}, 5)(5)
    out = module(x, Context(causal_mask(5, 0, None, x, x.dtype), tables))

    latent = module.key_value_down_norm((x @ module.key_value_down.weight.T)[..., :6])
    shared_key = (x @ module.key_value_down.weight.T)[..., 6:].reshape(1, 5, 1, 4)
    up = (latent @ module.key_value_up.weight.T).reshape(1, 5, 2, 13)
    query = (x @ module.query.weight.T).reshape(1, 5, 2, 12)
    heads = []
    for h in range(2):
        q = torch.cat((query[0, :, h, :8], rotate(query[:, :, h : h + 1, 8:], tables)[0, :, 0]), -1)
        k = torch.cat((up[0, :, h, :8], rotate(shared_key, tables)[0, :, 0]), -1)
        scores = (q @ k.T / 12**0.5).masked_fill(torch.ones(5, 5).triu(1).bool(), -torch.inf)
        heads.append(scores.softmax(-1) @ up[0, :, h, 8:])
    torch.testing.assert_close(out[0], torch.cat(heads, -1) @ module.output.weight.T)
