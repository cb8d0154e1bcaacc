"""A small Llama: RMS norms, grouped-query attention, SwiGLU. Its layers have the names that parallel plans go by."""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional


@dataclass(frozen=True)
class Sizes:
    """Sizes of a model."""

    hidden: int = 64
    heads: int = 4
    key_value_heads: int = 4
    inner: int = 128
    vocabulary: int = 96
    layers: int = 2

    @property
    def head(self):
        """Size of a head."""
        return self.hidden // self.heads

    @property
    def layer_matrices(self):
        """Elements of the seven matrices of a layer."""
        attention = 2 * self.hidden * self.hidden + 2 * self.hidden * self.head * self.key_value_heads
        return attention + 3 * self.hidden * self.inner

    @property
    def layer_parameters(self):
        """Elements of a layer: matrices and two norms."""
        return self.layer_matrices + 2 * self.hidden

    @property
    def parameters(self):
        """Elements of the model: layers, embedding, head and last norm."""
        return self.layers * self.layer_parameters + 2 * self.vocabulary * self.hidden + self.hidden


class Attention(nn.Module):
    """Causal attention of query heads that share key and value heads."""

    def __init__(self, sizes):
        super().__init__()
        self.head = sizes.head
        self.wq = nn.Linear(sizes.hidden, sizes.hidden, bias=False)
        self.wk = nn.Linear(sizes.hidden, sizes.head * sizes.key_value_heads, bias=False)
        self.wv = nn.Linear(sizes.hidden, sizes.head * sizes.key_value_heads, bias=False)
        self.wo = nn.Linear(sizes.hidden, sizes.hidden, bias=False)

    def forward(self, x):
        """X is [batch, tokens, hidden]; under tensor parallelism the heads are this rank's."""
        q, k, v = (w(x).unflatten(-1, (-1, self.head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])
        return self.wo(out.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """SwiGLU."""

    def __init__(self, sizes):
        super().__init__()
        self.w1 = nn.Linear(sizes.hidden, sizes.inner, bias=False)
        self.w2 = nn.Linear(sizes.inner, sizes.hidden, bias=False)
        self.w3 = nn.Linear(sizes.hidden, sizes.inner, bias=False)

    def forward(self, x):
        """Gate, up, down."""
        return self.w2(functional.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A layer."""

    def __init__(self, sizes):
        super().__init__()
        self.attention_norm, self.ffn_norm = nn.RMSNorm(sizes.hidden), nn.RMSNorm(sizes.hidden)
        self.attention, self.feed_forward = Attention(sizes), FeedForward(sizes)

    def forward(self, x):
        """Attention and feed-forward, each with its residual."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.feed_forward(self.ffn_norm(x))


class Llama(nn.Module):
    """A decoder."""

    def __init__(self, sizes):
        super().__init__()
        self.tok_embeddings = nn.Embedding(sizes.vocabulary, sizes.hidden)
        self.layers = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.hidden)
        self.output = nn.Linear(sizes.hidden, sizes.vocabulary, bias=False)

    def forward(self, tokens):
        """Logits of token ids [batch, tokens]."""
        x = self.tok_embeddings(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def data(sizes, batch, length):
    """Token ids and labels."""
    return torch.randint(sizes.vocabulary, (batch, length)), torch.randint(sizes.vocabulary, (batch, length))


def loss_of(logits, labels):
    """Mean cross-entropy."""
    return functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
