"""How a layer mixes tokens: projections, and the core that makes of queries, keys and values one value per token."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, NamedTuple

import torch
from einops import rearrange, repeat
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from torchledger.ops.attention import causal_pairs
from torchledger.spec import ModelSpec
from torchledger.trainer.joint import Joint, is_joint
from torchledger.trainer.linear import Linear
from torchledger.trainer.norm import Norm, weighted
from torchledger.trainer.position import rotate
from torchledger.trainer.seeds import OwnDraws

__all__ = ["Attention", "Context", "Core", "attend"]


class Context(NamedTuple):
    """What all layers of one kind share in a forward pass.

    Attributes:
        mask: added to the scores, [heads or 1, length, length], or one such for each sequence; nothing where the kernel
            knows causality by itself.
        rotary: cosines and sines, [length, 1, rotary] each; nothing without rotary positions.
        window: tokens that a query sees, itself included; 0 is all before it.
    """

    mask: Tensor | None
    rotary: tuple[Tensor, Tensor] | None
    window: int = 0


class Core(nn.Module):
    """Scores, softmax, values. It has no parameters.

    `math` writes the scores to memory: on CPUs this is the faster one for short sequences in bfloat16, because its two
    matmuls reach the matrix units. `fused` is torch's scaled-dot-product kernel.

    Args:
        spec: the model.
        kernel: which of the two; a soft-cap on the scores needs `math`.
    """

    #: Contractions in here are attention, not matmuls with weights: the ledger keeps them apart.
    ledger_kind = "attention"

    def __init__(self, spec: ModelSpec, kernel: Literal["math", "fused"]) -> None:
        super().__init__()
        attention = spec.attention
        self.scale = spec.head_size**-0.5 if attention.scale is None else attention.scale
        self.soft_cap = attention.logit_soft_cap
        self.dropout = attention.dropout
        self.groups = attention.num_heads // spec.num_key_value_heads
        self.kernel = "math" if self.soft_cap is not None else kernel
        #: Where it draws numbers of its own for dropout; nothing draws as the stream does.
        self.draws: OwnDraws | None = None
        #: Whether it keeps its operands only and runs again in the backward pass; `model.build` says so.
        self.is_recomputed = False

    def forward(
        self,
        query: Float[Tensor, "batch length heads size"],
        key: Float[Tensor, "batch length key_value_heads size"],
        value: Float[Tensor, "batch length key_value_heads value_size"],
        mask: Float[Tensor, "*batch heads_or_1 length length"] | None,
        window: int = 0,
    ) -> Float[Tensor, "batch length heads*value_size"]:
        """Attend: each query over the keys that `mask` lets it see (all earlier ones where there is none).

        `window` is what the mask was made with: a mask is data, so the ledger is told here which share of the square
        it lets through.
        """
        length = query.shape[1]
        self.ledger_visible = (causal_pairs(length, window), length * length)
        if self.kernel == "math":
            assert mask is not None
            return self._math(query, key, value, mask)
        return self._fused(query, key, value, mask)

    def _math(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        batch, groups = query.shape[0], self.groups
        q = by_head(query).flatten(0, 1)
        k = by_head(key, groups).flatten(0, 1)
        v = by_head(value, groups).flatten(0, 1)
        scores = torch.bmm(q * self.scale, rearrange(k, "n t d -> n d t"))
        if self.soft_cap is not None:
            scores = torch.tanh(scores / self.soft_cap) * self.soft_cap
        # In place: no backward formula needs the scores, and where the mask is -inf softmax gives a gradient of 0 by
        # itself. One pass over [b, h, t, t] less in each direction than masked_fill.
        rearrange(scores, "(b h) i j -> b h i j", b=batch).add_(mask)
        weights = torch.softmax(scores, dim=-1)
        if self.dropout:
            with self._drawing(weights):
                weights = functional.dropout(weights, self.dropout, self.training)
        return rearrange(torch.bmm(weights, v), "(b h) t d -> b t (h d)", b=batch)

    def _fused(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        with self._drawing(query):
            out = functional.scaled_dot_product_attention(
                by_head(query),
                # The CPU kernel takes no fewer key-value heads than query heads and would write the scores.
                by_head(key, self.groups),
                by_head(value, self.groups),
                attn_mask=mask.unsqueeze(0) if mask is not None and mask.ndim == 3 else mask,
                dropout_p=self.dropout if self.training else 0.0,
                is_causal=mask is None,
                scale=self.scale,
            )
        return out.transpose(1, 2).flatten(2)

    def _drawing(self, x: Tensor) -> AbstractContextManager[None]:
        is_apart = self.draws is not None and self.dropout > 0 and self.training
        return self.draws.of(x) if is_apart and self.draws is not None else nullcontext()


def by_head(
    x: Float[Tensor, "batch length heads size"], groups: int = 1
) -> Float[Tensor, "batch heads*groups length size"]:
    """Each head's tokens one after the other; each head `groups` times, which alone makes a copy.

    einops says the same in one line, and takes as long over it as torch over the views of a small model's whole layer.
    """
    return x.transpose(1, 2) if groups == 1 else repeat(x, "b t k d -> b (k g) t d", g=groups)


def attend(
    core: Core,
    query: Float[Tensor, "batch length heads size"],
    key: Float[Tensor, "batch length key_value_heads size"],
    value: Float[Tensor, "batch length key_value_heads value_size"],
    context: Context,
) -> Float[Tensor, "batch length heads*value_size"]:
    """The core on these operands; with selective recompute they alone are kept, and it runs again."""
    if not core.is_recomputed or not torch.is_grad_enabled():
        out: Tensor = core(query, key, value, context.mask, context.window)
        return out
    replay = core.training and core.dropout > 0  # only dropout would draw random numbers again
    again: Tensor = checkpoint(
        core, query, key, value, context.mask, context.window, use_reentrant=False, preserve_rng_state=replay
    )
    return again


class Attention(nn.Module):
    """Multi-head attention with H query heads and K key-value heads (GQA, Ainslie et al., arXiv:2305.13245).

    Args:
        spec: the model.
        kernel: `math` or `fused`.
    """

    def __init__(self, spec: ModelSpec, kernel: Literal["math", "fused"]) -> None:
        super().__init__()
        attention, D, size = spec.attention, spec.hidden_size, spec.head_size
        H, K = attention.num_heads, spec.num_key_value_heads
        self.head_size, self.clip = size, attention.clip
        self.norm_heads = attention.query_key_norm == "head"
        self.query = Linear(D, H * size, bias=attention.query_bias)
        self.key = Linear(D, K * size, bias=attention.key_bias)
        self.value = Linear(D, K * size, bias=attention.value_bias)
        self.query_key_value = Joint()
        widths = {"none": None, "head": (size, size), "full": (H * size, K * size)}[attention.query_key_norm]
        norm = weighted(spec.norm)
        self.query_norm = Norm(widths[0], norm) if widths else None
        self.key_norm = Norm(widths[1], norm) if widths else None
        self.output = Linear(H * size, D, bias=attention.output_bias)
        self.core = Core(spec, kernel)

    def forward(
        self, x: Float[Tensor, "batch length hidden"], context: Context
    ) -> Float[Tensor, "batch length hidden"]:
        """Mix the tokens of `x`."""
        query, key, value = self._projected(x)
        query, key = self._normed(query, self.query_norm), self._normed(key, self.key_norm)
        if context.rotary is not None:
            query, key = rotate(query, context.rotary), rotate(key, context.rotary)
        out: Tensor = self.output(attend(self.core, query, key, value, context))
        return out

    def _projected(
        self, x: Float[Tensor, "batch length hidden"]
    ) -> Sequence[Float[Tensor, "batch length heads_of_one size"]]:
        """Queries, keys and values by heads, each by its own product or all by one (`joint`)."""
        maps = (self.query, self.key, self.value)
        if not is_joint(x, maps):
            return [self._heads(each(x)) for each in maps]
        heads = self._heads(self.query_key_value(x, maps))
        groups = self.core.groups
        few = heads.shape[2] // (groups + 2)  # of this rank: `groups` query heads to each key, and a value
        return torch.split(heads, [groups * few, few, few], dim=2)

    def _heads(self, projected: Float[Tensor, "batch length heads*size"]) -> Float[Tensor, "batch length heads size"]:
        """Clip, and part into heads."""
        if self.clip is not None:
            projected = projected.clamp(-self.clip, self.clip)
        batch, length, _ = projected.shape
        return projected.view(batch, length, -1, self.head_size)

    def _normed(
        self, heads: Float[Tensor, "batch length heads size"], norm: Norm | None
    ) -> Float[Tensor, "batch length heads size"]:
        """Normalized over each head, or over all of a token's heads."""
        if norm is None:
            return heads
        if self.norm_heads:
            by_head: Tensor = norm(heads)
            return by_head
        flat: Tensor = norm(rearrange(heads, "b t h d -> b t (h d)"))
        return rearrange(flat, "b t (h d) -> b t h d", d=self.head_size)
