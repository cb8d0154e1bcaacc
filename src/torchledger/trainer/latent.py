"""Multi-head latent attention: keys and values from one small vector per token (DeepSeek-V2, arXiv:2405.04434)."""

from typing import Literal

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn

from torchledger.spec import ModelSpec
from torchledger.trainer.attention import Context, Core, attend
from torchledger.trainer.linear import Linear
from torchledger.trainer.norm import Norm, weighted
from torchledger.trainer.position import rotate

__all__ = ["LatentAttention"]


class LatentAttention(nn.Module):
    """MLA, eqs. 37 to 47: low-rank queries (optional) and keys and values, one rotated key shared by all heads.

    A head's query and key are `plain_head_size` dimensions without and `rotary_head_size` with rotation; its value has
    `value_head_size`.

    Args:
        spec: the model.
        kernel: `math` or `fused`.
    """

    def __init__(self, spec: ModelSpec, kernel: Literal["math", "fused"]) -> None:
        super().__init__()
        a, D, H = spec.attention, spec.hidden_size, spec.attention.num_heads
        norm = weighted(spec.norm)
        self.key_value_rank = a.key_value_rank
        self.plain, self.rotary, self.value_size = a.plain_head_size, a.rotary_head_size, a.value_head_size
        width = H * (self.plain + self.rotary)
        compressed = a.query_rank > 0
        self.query = None if compressed else Linear(D, width, bias=False)
        self.query_down = Linear(D, a.query_rank, bias=False) if compressed else None
        self.query_down_norm = Norm(a.query_rank, norm) if compressed else None
        self.query_up = Linear(a.query_rank, width, bias=False) if compressed else None
        self.key_value_down = Linear(D, a.key_value_rank + self.rotary, bias=False)
        self.key_value_down_norm = Norm(a.key_value_rank, norm)
        self.key_value_up = Linear(a.key_value_rank, H * (self.plain + self.value_size), bias=False)
        self.output = Linear(H * self.value_size, D, bias=False)
        self.core = Core(spec, kernel)

    def forward(
        self, x: Float[Tensor, "batch length hidden"], context: Context
    ) -> Float[Tensor, "batch length hidden"]:
        """Mix the tokens of `x`."""
        plain_query, turned_query = torch.split(self._query(x), [self.plain, self.rotary], dim=-1)
        latent, turned_key = torch.split(self.key_value_down(x), [self.key_value_rank, self.rotary], dim=-1)
        expanded = self.key_value_up(self.key_value_down_norm(latent))
        expanded = rearrange(expanded, "b t (h d) -> b t h d", d=self.plain + self.value_size)
        plain_key, value = torch.split(expanded, [self.plain, self.value_size], dim=-1)
        turned_key = rearrange(turned_key, "b t r -> b t 1 r")
        if context.rotary is not None:
            turned_query, turned_key = rotate(turned_query, context.rotary), rotate(turned_key, context.rotary)
        query = torch.cat((plain_query, turned_query), dim=-1)
        key = torch.cat((plain_key, repeat(turned_key, "b t 1 r -> b t h r", h=plain_key.shape[2])), dim=-1)
        out: Tensor = self.output(attend(self.core, query, key, value, context))
        return out

    def _query(self, x: Float[Tensor, "batch length hidden"]) -> Float[Tensor, "batch length heads size"]:
        if self.query is not None:
            query = self.query(x)
        else:
            assert self.query_down is not None
            assert self.query_down_norm is not None
            assert self.query_up is not None
            query = self.query_up(self.query_down_norm(self.query_down(x)))
        heads: Tensor = rearrange(query, "b t (h d) -> b t h d", d=self.plain + self.rotary)
        return heads
