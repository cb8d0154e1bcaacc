"""The Llama and Qwen3 decoders of torchtitan as its runs trained them: the order of operations, in our own words.

Memory depends on which tensor lives how long, so the order of casts, views and products is torchtitan's
(torchtitan/models/llama/model.py at commit 5940ddeb5, torchtitan/experiments/qwen3/model/model.py at d66b72a6a).
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder.

    `has_own_norm` is RMSNorm written out in five operations, as before March 2025; `is_flat` folds batch and length
    into one dimension between embedding and head and casts the logits inside the model, as in March 2024.
    """

    num_layers: int
    hidden_size: int
    num_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    head_size: int = 0
    has_own_norm: bool = False
    has_query_key_norm: bool = False
    is_flat: bool = False
    is_complex_rotary: bool = True

    @property
    def width(self):
        """Width of one head."""
        return self.head_size or self.hidden_size // self.num_heads


LLAMA_3_8B = Shape(32, 4096, 32, 8, 14336, 128256)
LLAMA_2_7B = Shape(32, 4096, 32, 32, 11008, 32000, has_own_norm=True, is_flat=True)
DEBUG = Shape(6, 256, 16, 16, 768, 2048)
QWEN_3_32B = Shape(64, 5120, 64, 8, 25600, 151936, head_size=128, has_query_key_norm=True, is_complex_rotary=False)


class OwnRMSNorm(nn.Module):
    """RMSNorm written out: cast to fp32, normalise, cast back, scale."""

    def __init__(self, size):
        super().__init__()
        self.eps = 1e-5
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x):
        """Normalise the last dimension."""
        wide = x.float()
        normal = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return normal.type_as(x) * self.weight


def norm(shape, size):
    """The norm of a run."""
    return OwnRMSNorm(size) if shape.has_own_norm else nn.RMSNorm(size, eps=1e-5)


def rotate_complex(query, key, angles):
    """Rotary embedding as a product of complex numbers in fp32."""
    query_pairs = torch.view_as_complex(query.float().reshape(*query.shape[:-1], -1, 2))
    key_pairs = torch.view_as_complex(key.float().reshape(*key.shape[:-1], -1, 2))
    turn = angles[: query.shape[1]].view(1, query.shape[1], 1, query_pairs.shape[-1])
    query_turned = torch.view_as_real(query_pairs * turn).flatten(3)
    key_turned = torch.view_as_real(key_pairs * turn).flatten(3)
    return query_turned.type_as(query), key_turned.type_as(key)


def rotate_halves(query, key, angles):
    """Rotary embedding by cosines and sines of the two halves (Qwen3)."""
    size = query.shape[-1]
    table = angles[: query.shape[1]].view(1, query.shape[1], 1, 2 * size)
    cos, sin = table[..., :size].to(query.dtype), table[..., size:].to(query.dtype)

    def swapped(x):
        return torch.cat((-x[..., size // 2 :], x[..., : size // 2]), dim=-1)

    query_turned = (query * cos) + (swapped(query) * sin)
    key_turned = (key * cos) + (swapped(key) * sin)
    return query_turned.type_as(query), key_turned.type_as(key)


def repeated(x, times):
    """Key-value heads written out for the query heads that share them."""
    if times == 1:
        return x
    batch, length, heads, size = x.shape
    return x.unsqueeze(3).expand(batch, length, heads, times, size).reshape(batch, length, heads * times, size)


class Attention(nn.Module):
    """Causal attention with grouped key-value heads."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        width, hidden = shape.width, shape.hidden_size
        self.wq = nn.Linear(hidden, shape.num_heads * width, bias=False)
        self.wk = nn.Linear(hidden, shape.num_key_value_heads * width, bias=False)
        self.wv = nn.Linear(hidden, shape.num_key_value_heads * width, bias=False)
        self.wo = nn.Linear(shape.num_heads * width, hidden, bias=False)
        self.q_norm = nn.RMSNorm(width, eps=1e-6) if shape.has_query_key_norm else None
        self.k_norm = nn.RMSNorm(width, eps=1e-6) if shape.has_query_key_norm else None
        self.times = shape.num_heads // shape.num_key_value_heads

    def forward(self, x, angles):
        """[batch, length, hidden] (or flat) -> the same."""
        length = angles.shape[0]
        batch = x.numel() // (length * x.shape[-1])
        query, key, value = self.wq(x), self.wk(x), self.wv(x)
        query = query.view(batch, length, -1, self.shape.width)
        key = key.view(batch, length, -1, self.shape.width)
        value = value.view(batch, length, -1, self.shape.width)
        if self.q_norm is not None:
            query = self.q_norm(query)
        if self.k_norm is not None:
            key = self.k_norm(key)
        rotate = rotate_complex if self.shape.is_complex_rotary else rotate_halves
        query, key = rotate(query, key, angles)
        keys, values = repeated(key, self.times), repeated(value, self.times)
        query, key, value = query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2)
        output = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        output = output.transpose(1, 2).contiguous()
        return self.wo(output.view(*x.shape[:-1], -1))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, shape):
        super().__init__()
        self.w1 = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)
        self.w2 = nn.Linear(shape.intermediate_size, shape.hidden_size, bias=False)
        self.w3 = nn.Linear(shape.hidden_size, shape.intermediate_size, bias=False)

    def forward(self, x):
        """[batch, length, hidden] -> the same."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """Attention and feed-forward with a norm before each."""

    def __init__(self, shape):
        super().__init__()
        self.attention, self.feed_forward = Attention(shape), FeedForward(shape)
        self.attention_norm, self.ffn_norm = norm(shape, shape.hidden_size), norm(shape, shape.hidden_size)

    def forward(self, x, angles):
        """[batch, length, hidden] -> the same."""
        h = x + self.attention(self.attention_norm(x), angles)
        return h + self.feed_forward(self.ffn_norm(h))


class Decoder(nn.Module):
    """Embedding, blocks in a ModuleDict as torchtitan keeps them, norm and head."""

    def __init__(self, shape, max_length):
        super().__init__()
        self.shape = shape
        self.tok_embeddings = nn.Embedding(shape.vocab_size, shape.hidden_size)
        angles = (
            torch.empty(max_length, shape.width // 2, dtype=torch.complex64)
            if shape.is_complex_rotary
            else torch.empty(max_length, 2 * shape.width)
        )
        self.register_buffer("freqs_cis", angles)
        self.layers = nn.ModuleDict({str(number): Block(shape) for number in range(shape.num_layers)})
        self.norm = norm(shape, shape.hidden_size)
        self.output = nn.Linear(shape.hidden_size, shape.vocab_size, bias=False)

    def forward(self, tokens):
        """[batch, length] -> logits."""
        h = self.tok_embeddings(tokens)
        batch, length = tokens.shape
        angles, hidden = self.freqs_cis[:length], h.shape[-1]
        if self.shape.is_flat:
            h = h.view(-1, hidden)
        for layer in self.layers.values():
            h = layer(h, angles)
        h = self.norm(h)
        return self.output(h.view(batch, length, hidden)).float() if self.shape.is_flat else self.output(h)
