"""The nets of the rows, by the sizes B sequences, S tokens, d wide, H heads of h."""

import torch
from torch import nn
from torch.nn import functional

B, S, d, H = 2, 32, 64, 4
h, T = d // H, B * S
#: One d x d layer on all tokens, and both products of full attention.
LAYER = 2 * T * d * d
ATTENTION = 2 * 2 * B * H * S * S * h
CAUSAL = 2 * 2 * B * H * h * S * (S + 1) // 2
BLOCK = 3 * LAYER + ATTENTION + LAYER + 8 * LAYER


class Block(nn.Module):
    """A GPT-2 block: norm, attention, norm, a hidden layer four times as wide."""

    def __init__(self, *, causal=False, eager=False):
        super().__init__()
        self.causal, self.eager = causal, eager
        self.ln_1, self.ln_2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def attend(self, q, k, v):
        """Fused, or written out."""
        if not self.eager:
            return functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return torch.softmax(q @ k.transpose(-1, -2) / h**0.5, -1) @ v

    def forward(self, x):
        """Run it."""
        q, k, v = (t.view(*x.shape[:2], H, h).transpose(1, 2) for t in self.qkv(self.ln_1(x)).chunk(3, -1))
        x = x + self.proj(self.attend(q, k, v).transpose(1, 2).reshape(x.shape))
        return x + self.down(functional.gelu(self.up(self.ln_2(x))))


class Grouped(nn.Module):
    """Attention of 4 query heads on 2 key-value heads."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, n, bias=False) for n in (d, d // 2, d // 2, d))

    def forward(self, x):
        """Run it."""
        q, k, v = (f(x).view(B, S, -1, h).transpose(1, 2) for f in (self.q, self.k, self.v))
        y = functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(B, S, d))


class TiedLM(nn.Module):
    """Embedding, one block and a head that shares the embedding's table, one way or the other."""

    def __init__(self, *, functional):
        super().__init__()
        self.functional = functional
        self.emb, self.block = nn.Embedding(256, d), Block(causal=True)
        if not functional:
            self.head = nn.Linear(d, 256, bias=False)
            self.head.weight = self.emb.weight

    def forward(self, ids):
        """Run it."""
        x = self.block(self.emb(ids))
        return functional.linear(x, self.emb.weight) if self.functional else self.head(x)


class Thrice(nn.Module):
    """One layer called three times."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(d, d)

    def forward(self, x):
        """Run it."""
        return self.layer(self.layer(self.layer(x)))


class Steps(nn.Module):
    """An LSTM cell in a loop of 16 steps."""

    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(32, 64)

    def forward(self, x):
        """Run it."""
        state = None
        for step in range(16):
            state = self.cell(x[:, step], state)
        return state[0]


class First(nn.Module):
    """A module of which only the first result counts."""

    def __init__(self, inner, *, times=1, **options):
        super().__init__()
        self.inner, self.times, self.options = inner, times, options

    def forward(self, x):
        """Run it."""
        return self.inner(*[x] * self.times, **self.options)[0]


class LoRA(nn.Module):
    """A frozen layer and a trained correction of rank r."""

    def __init__(self, r=4):
        super().__init__()
        self.base = nn.Linear(d, d, bias=False).requires_grad_(requires_grad=False)
        self.a, self.b = nn.Linear(d, r, bias=False), nn.Linear(r, d, bias=False)

    def forward(self, x):
        """Run it."""
        return self.base(x) + self.b(self.a(x))


def mlp():
    """64 -> 64 -> 10 with biases."""
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


class Mean(nn.Module):
    """Mean over the positions."""

    def forward(self, x):
        """Run it."""
        return x.mean((2, 3))


def conv_net():
    """Strided, depthwise, pointwise and transposed convolutions, and a layer."""
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1, groups=16),
        nn.Conv2d(16, 32, 1),
        nn.ConvTranspose2d(32, 8, 2, stride=2),
        Mean(),
        nn.Linear(8, 10),
    )


def encoder_layer(**options):
    """An encoder layer of torch."""
    return nn.TransformerEncoderLayer(d, H, 4 * d, batch_first=True, **options)


def images():
    """A batch of images."""
    return torch.zeros(2, 3, 32, 32)


def tokens():
    """A batch of embedded tokens."""
    return torch.zeros(B, S, d)


def ids():
    """A batch of token ids."""
    return torch.zeros(B, S, dtype=torch.int64)


def steps():
    """A batch of sequences for a recurrent net."""
    return torch.zeros(2, 16, 32)


#: Name -> how it is made, its input, and its forward FLOPs.
FORWARD = {
    "MLP": (mlp, lambda: torch.zeros(32, 64), 2 * 32 * 64 * (64 + 10)),
    "MLP on 3-D input": (mlp, tokens, 2 * T * 64 * (64 + 10)),
    "GPT-2 block": (Block, tokens, BLOCK),
    "GPT-2 block, causal": (lambda: Block(causal=True), tokens, BLOCK),
    "GPT-2 block, written out": (lambda: Block(eager=True), tokens, BLOCK),
    "GQA": (Grouped, tokens, LAYER + 2 * LAYER // 2 + ATTENTION + LAYER),
    "MultiheadAttention": (
        lambda: First(nn.MultiheadAttention(d, H, batch_first=True), times=3),
        tokens,
        3 * LAYER + ATTENTION + LAYER,
    ),
    "MultiheadAttention without weights": (
        lambda: First(nn.MultiheadAttention(d, H, batch_first=True), times=3, need_weights=False),
        tokens,
        3 * LAYER + ATTENTION + LAYER,
    ),
    "TransformerEncoderLayer": (encoder_layer, tokens, BLOCK),
    "TransformerEncoderLayer without dropout": (lambda: encoder_layer(dropout=0.0), tokens, BLOCK),
    "conv net": (
        conv_net,
        images,
        # positions x taps x inputs x outputs: 3->16 k3, 16 of 1->1 k3, 16->32 k1, transposed 32->8 k2, and 8->10.
        2 * 2 * (256 * 9 * 3 * 16 + 256 * 9 * 16 + 256 * 16 * 32 + 256 * 4 * 32 * 8 + 8 * 10),
    ),
    "LSTM": (
        lambda: First(nn.LSTM(32, 64, 2, batch_first=True)),
        steps,
        2 * 32 * 4 * 64 * ((32 + 64) + (64 + 64)),  # 32 steps in all, 4 gates
    ),
    "bi-GRU": (
        lambda: First(nn.GRU(32, 64, 2, batch_first=True, bidirectional=True)),
        steps,
        2 * (2 * 32 * 3 * 64 * ((32 + 64) + (2 * 64 + 64))),  # two directions, 3 gates
    ),
    "LSTMCell loop": (Steps, steps, 2 * 32 * 4 * 64 * (32 + 64)),
    "tied LM, one module's weight": (lambda: TiedLM(functional=False), ids, BLOCK + 2 * T * d * 256),
    "tied LM, F.linear": (lambda: TiedLM(functional=True), ids, BLOCK + 2 * T * d * 256),
    "one Linear called 3x": (Thrice, tokens, 3 * LAYER),
}
