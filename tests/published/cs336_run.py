# ruff: noqa: D102, RET504 - forward is forward; which names are bound decides what lives
"""The training runs of the public CS336 snapshots, written anew from their description: the medium model of the course.

Model: 24 layers of width 1,024, 16 heads, SwiGLU of width 4,096, RoPE, RMSNorm, 10,000 tokens, head not tied:
423,183,360 parameters. Attention is einsum, softmax, einsum, with the scores in memory. AdamW keeps two moments a
parameter and runs operation by operation. A run is some steps to warm up and one more, the recorded one. What decides
the peak is the order of operations and which names are bound while they run, so that follows the public scripts
(Wedsonlin/assignment2-systems and stanford-cs336, MIT licence); the code is our own.
"""

from __future__ import annotations

import contextlib
import math

import torch
from einops import rearrange
from torch import nn

VOCABULARY, BATCH = 10_000, 4
NUM_PARAMETERS = 423_183_360


class Linear(nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))

    def forward(self, x):
        return torch.einsum("bti,oi->bto", x, self.weight)


class Embedding(nn.Module):
    def __init__(self, num_tokens, width):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_tokens, width))

    def forward(self, tokens):
        return self.weight[tokens, :]


class RMSNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        given = x.dtype
        x = x.to(torch.float32)
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        x = x * scale
        return (self.weight * x).to(given)


class Rotation(nn.Module):
    def __init__(self, length, width):
        super().__init__()
        self.register_buffer("table", torch.empty(2, length, width // 2), persistent=False)

    def forward(self, x):
        even, odd = rearrange(x, "... (half pair) -> pair ... half", pair=2).unbind(0)
        cos, sin = self.table[:, : x.size(-2), :].unbind(0)
        first = cos * even - sin * odd
        second = sin * even + cos * odd
        return torch.concat((first, second), dim=-1)


def softmax(x):
    rescaled = x - torch.max(x, dim=-1, keepdim=True)[0]
    exponentials = torch.exp(rescaled)
    return exponentials / torch.sum(exponentials, dim=-1, keepdim=True)


def attend(queries, keys, values, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", queries, keys) / math.sqrt(keys.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return torch.einsum("bhqk,bhkd->bhqd", weights, values)


class Attention(nn.Module):
    def __init__(self, width, num_heads, rotation):
        super().__init__()
        self.num_heads = num_heads
        self.q, self.k, self.v, self.out = (Linear(width, width) for _ in range(4))
        self.rotation = rotation

    def forward(self, x):
        queries, keys, values = self.q(x), self.k(x), self.v(x)
        queries, keys, values = (
            rearrange(each, "... seq (heads d) -> ... heads seq d", heads=self.num_heads)
            for each in (queries, keys, values)
        )
        queries = self.rotation(queries)
        keys = self.rotation(keys)
        positions = torch.arange(x.size(1), device=x.device)
        mask = positions[:, None] >= positions[None, :]
        mask = mask[None, ...]
        mixed = attend(queries, keys, values, mask)
        mixed = rearrange(mixed, "batch heads seq d -> batch seq (heads d)").contiguous()
        return self.out(mixed)


class Gated(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.w1, self.w2, self.w3 = Linear(width, hidden), Linear(hidden, width), Linear(width, hidden)

    def forward(self, x):
        return self.w2(silu(self.w1(x)) * self.w3(x))


def silu(x):
    return x * torch.sigmoid(x)


class Layer(nn.Module):
    def __init__(self, width, num_heads, hidden, rotation):
        super().__init__()
        self.attention = Attention(width, num_heads, rotation)
        self.mlp = Gated(width, hidden)
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)

    def forward(self, x):
        from_attention = self.attention(self.norm1(x))
        middle = x + from_attention
        from_mlp = self.mlp(self.norm2(middle))
        return middle + from_mlp


class Medium(nn.Module):
    def __init__(self, length, width=1024, num_layers=24, num_heads=16, hidden=4096):
        super().__init__()
        self.embedding = Embedding(VOCABULARY, width)
        self.rotation = Rotation(length, width // num_heads)
        self.layers = nn.ModuleList(Layer(width, num_heads, hidden, self.rotation) for _ in range(num_layers))
        self.norm = RMSNorm(width)
        self.head = Linear(width, VOCABULARY)

    def forward(self, tokens):
        embedded = self.embedding(tokens)
        x = embedded
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x)
        logits = self.head(x)
        return logits


def log_softmax(x):
    largest = torch.max(x, dim=-1, keepdim=True)[0]
    x = x - largest
    return x - torch.log(torch.sum(torch.exp(x), dim=-1, keepdim=True))


def cross_entropy(logits, targets):
    negative = -log_softmax(logits)
    return torch.mean(torch.gather(negative, -1, targets.unsqueeze(-1)))


class AdamW(torch.optim.Optimizer):
    """AdamW, operation by operation, a parameter at a time."""

    def __init__(self, parameters):
        super().__init__(parameters, {"rate": 1e-3, "betas": (0.9, 0.999), "eps": 1e-8, "decay": 0.01})

    def step(self, closure=None):  # noqa: ARG002 - torch's signature
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad = p.grad.data
                state = self.state[p]
                rate, (b1, b2), t = group["rate"], group["betas"], state.get("t", 1)
                now = rate * math.sqrt(1 - b2**t) / (1 - b1**t)
                p.data -= rate * group["decay"] * p.data
                first_before = state.get("m", torch.zeros_like(grad))
                second_before = state.get("v", torch.zeros_like(grad))
                first = b1 * first_before + ((1 - b1) * grad)
                second = b2 * second_before + ((1 - b2) * torch.square(grad))
                p.data -= now * first / (torch.sqrt(second) + group["eps"])
                state["m"] = first
                state["v"] = second
                state["t"] = t + 1


class Training:
    """Steps of one run; called once for each step, the last one being the recorded one."""

    def __init__(self, length, *, autocast, num_warmup=5, device="cuda"):
        self.model = Medium(length).to(device)
        self.optimizer = AdamW(self.model.parameters())
        self.warmup_inputs = self._tokens(num_warmup, length, device)
        self.inputs = self._tokens(1, length, device)
        self.warmup_targets = self._tokens(num_warmup, length, device)
        self.targets = self._tokens(1, length, device)
        self.autocast, self.num_warmup, self.done = autocast, num_warmup, 0
        self.output = self.loss = None

    @staticmethod
    def _tokens(steps, length, device):
        return torch.randint(0, VOCABULARY, (steps, BATCH, length), device=device)

    def __call__(self):
        """One step; the last one keeps its gradients, as the recorded one does."""
        number, is_last = self.done, self.done == self.num_warmup
        inputs, targets = (self.inputs, self.targets) if is_last else (self.warmup_inputs, self.warmup_targets)
        number = 0 if is_last else number
        if is_last:
            self.output = self.loss = None
            self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16) if self.autocast else contextlib.nullcontext():
            self.output = self.model(inputs[number])
            self.loss = cross_entropy(self.output, targets[number])
        self.loss.backward()
        self.optimizer.step()
        if not is_last:
            self.optimizer.zero_grad()
        self.done += 1


class Inference:
    """Forward passes without gradients; called once for each."""

    def __init__(self, length, *, num_warmup=5, device="cuda"):
        self.model = Medium(length).to(device)
        self.warmup_inputs = Training._tokens(num_warmup, length, device)
        self.inputs = Training._tokens(1, length, device)
        self.num_warmup, self.done = num_warmup, 0

    def __call__(self):
        """One forward pass."""
        inputs, number = (self.inputs, 0) if self.done == self.num_warmup else (self.warmup_inputs, self.done)
        with torch.no_grad():  # theirs is inference_mode, which allocates the same
            self.model(inputs[number])
        self.done += 1
