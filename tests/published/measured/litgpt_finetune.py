"""LoRA finetuning as litgpt's resource tables measured it (commit 8641822, October 2023), in our own words.

Memory depends on which tensor lives how long, so the order of casts and products is litgpt's: lit_gpt/model.py,
lit_gpt/lora.py, finetune/lora.py. The first iteration holds the longest sample of the data, which makes the peak.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

RANK = 8
CHUNK = 128  # tokens of the head and of the loss at a time
ACCUMULATED = 128  # sequences of a step


@dataclass(frozen=True)
class Shape:
    """Sizes of a model, named as litgpt's configurations name them in the field's terms."""

    num_layers: int
    hidden_size: int
    num_heads: int
    padded_vocab_size: int
    max_length: int
    rotary_share: float
    is_parallel: bool = True
    has_shared_norm: bool = False
    has_bias: bool = True
    has_head_bias: bool = False
    gated_size: int = 0  # 0: GELU of 4 x hidden_size
    gelu: str = "none"
    has_rms_norm: bool = False

    @property
    def width(self):
        """Width of one head."""
        return self.hidden_size // self.num_heads

    @property
    def rotary_size(self):
        """Elements of a head that are rotated."""
        return int(self.rotary_share * self.width)


PHI_1_5 = Shape(24, 2048, 32, 51200, 2048, 0.5, has_shared_norm=True, has_head_bias=True, gelu="tanh")
STABLELM_ALPHA_3B = Shape(16, 4096, 32, 50688, 4096, 0.25)
LLAMA_2_7B = Shape(
    32, 4096, 32, 32000, 4096, 1.0, is_parallel=False, has_bias=False, gated_size=11008, has_rms_norm=True
)
LLAMA_2_13B = Shape(
    40, 5120, 40, 32000, 4096, 1.0, is_parallel=False, has_bias=False, gated_size=13824, has_rms_norm=True
)


class RMSNorm(nn.Module):
    """RMSNorm in fp32, as litgpt has it since 24 October 2023 (#606).

    At the commit that the tables name, of 16 October, it was in the format of its input. With that one the three
    Llama 2 rows come out 3.2, 4.8 and 2.8 % below what was published, with this one within 0.1 %, as the rows without
    RMSNorm do either way: the tables, merged on 27 October, were measured with it.
    """

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))

    def forward(self, x):
        """Normalise the last dimension."""
        wide = x.float()
        mean = torch.mean(wide * wide, dim=-1, keepdim=True)
        normal = wide * torch.rsqrt(mean + 1e-5)
        return (self.weight * normal).to(dtype=x.dtype)


def norm(shape):
    """The norm of a model."""
    return RMSNorm(shape.hidden_size) if shape.has_rms_norm else nn.LayerNorm(shape.hidden_size, eps=1e-5)


def rotated(x, cos, sin):
    """Rotary embedding: tables in fp32 make the products fp32, whatever x is."""
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).type_as(x)


class AdaptedProjection(nn.Module):
    """The joint projection to query, key and value, with low-rank updates of query and value."""

    def __init__(self, shape):
        super().__init__()
        hidden = shape.hidden_size
        self.hidden_size = hidden
        self.linear = nn.Linear(hidden, 3 * hidden, bias=shape.has_bias)
        self.dropout = nn.Dropout(0.05)
        self.lora_A = nn.Parameter(torch.empty(2 * RANK, hidden))
        self.lora_B = nn.Parameter(torch.empty(2 * hidden, RANK))

    def forward(self, x):
        """[batch, length, hidden] -> [batch, length, 3·hidden]."""
        frozen = self.linear(x)
        low = functional.linear(self.dropout(x), self.lora_A)
        high = functional.conv1d(low.transpose(-2, -1), self.lora_B.unsqueeze(-1), groups=2).transpose(-2, -1)
        return frozen + self._padded(high) * 2.0

    def _padded(self, update):
        """The update with zeros in the place of the key's."""
        update = update.transpose(0, 1)
        result = update.new_zeros((*update.shape[:-1], 3 * self.hidden_size)).view(-1, 3 * self.hidden_size)
        columns = torch.empty(2 * self.hidden_size, dtype=torch.int64, device=result.device)
        result = result.index_copy(1, columns, update.reshape(-1, 2 * self.hidden_size))
        return result.view((*update.shape[:-1], 3 * self.hidden_size)).transpose(0, 1)


class Attention(nn.Module):
    """Causal attention with rotary position embedding of a part of each head."""

    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.attn = AdaptedProjection(shape)
        self.proj = nn.Linear(shape.hidden_size, shape.hidden_size, bias=shape.has_bias)

    def forward(self, x, cos, sin):
        """[batch, length, hidden] -> the same."""
        batch, length, hidden = x.size()
        heads, width, turned = self.shape.num_heads, self.shape.width, self.shape.rotary_size
        joint = self.attn(x).view(batch, length, heads, 3, width).permute(0, 2, 3, 1, 4)
        query, key, value = joint.split((1, 1, 1), dim=2)
        key = key.expand(batch, heads, 1, length, width)
        value = value.expand(batch, heads, 1, length, width)
        query = query.reshape(batch, -1, length, width)
        key = key.reshape(batch, -1, length, width)
        value = value.reshape(batch, -1, length, width)
        query_turned = rotated(query[..., :turned], cos, sin)
        key_turned = rotated(key[..., :turned], cos, sin)
        query = torch.cat((query_turned, query[..., turned:]), dim=-1)
        key = torch.cat((key_turned, key[..., turned:]), dim=-1)
        y = functional.scaled_dot_product_attention(query, key, value, dropout_p=0.0, scale=width**-0.5, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(batch, length, hidden))


class FeedForward(nn.Module):
    """GELU or SwiGLU."""

    def __init__(self, shape):
        super().__init__()
        self.gelu = shape.gelu
        self.is_gated = bool(shape.gated_size)
        size = shape.gated_size or 4 * shape.hidden_size
        self.fc = nn.Linear(shape.hidden_size, size, bias=shape.has_bias)
        self.fc_2 = nn.Linear(shape.hidden_size, size, bias=shape.has_bias) if self.is_gated else None
        self.proj = nn.Linear(size, shape.hidden_size, bias=shape.has_bias)

    def forward(self, x):
        """[batch, length, hidden] -> the same."""
        if self.fc_2 is None:
            return self.proj(functional.gelu(self.fc(x), approximate=self.gelu))
        gate = self.fc(x)
        up = self.fc_2(x)
        return self.proj(functional.silu(gate) * up)


class Block(nn.Module):
    """Attention and feed-forward, one after the other or side by side."""

    def __init__(self, shape):
        super().__init__()
        self.is_parallel = shape.is_parallel
        self.norm_1 = norm(shape)
        self.attn = Attention(shape)
        self.norm_2 = None if shape.has_shared_norm else norm(shape)
        self.mlp = FeedForward(shape)

    def forward(self, x, cos, sin):
        """[batch, length, hidden] -> the same."""
        n_1 = self.norm_1(x)
        h = self.attn(n_1, cos, sin)
        if self.is_parallel:
            n_2 = n_1 if self.norm_2 is None else self.norm_2(x)
            return x + h + self.mlp(n_2)
        x = x + h
        return x + self.mlp(self.norm_2(x))


class Model(nn.Module):
    """Embedding, blocks, norm and head; rotary tables in fp32 of the longest sample's length."""

    def __init__(self, shape, length):
        super().__init__()
        self.lm_head = nn.Linear(shape.hidden_size, shape.padded_vocab_size, bias=shape.has_head_bias)
        self.wte = nn.Embedding(shape.padded_vocab_size, shape.hidden_size)
        self.h = nn.ModuleList(Block(shape) for _ in range(shape.num_layers))
        self.ln_f = norm(shape)
        self.register_buffer("cos", torch.empty(length, shape.rotary_size, dtype=torch.float32))
        self.register_buffer("sin", torch.empty(length, shape.rotary_size, dtype=torch.float32))

    def forward(self, tokens):
        """[batch, length] -> logits in chunks of `CHUNK` tokens."""
        length = tokens.size(1)
        cos, sin = self.cos[:length], self.sin[:length]
        x = self.wte(tokens)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        return [self.lm_head(part) for part in x.split(CHUNK, dim=1)]


def chunked_loss(logits, targets):
    """Mean cross-entropy of logits in chunks."""
    flat = [part.reshape(-1, part.size(-1)) for part in logits]
    flat_targets = [part.reshape(-1) for part in targets.split(logits[0].size(1), dim=1)]
    losses = [
        functional.cross_entropy(part, target, ignore_index=-1, reduction="none")
        for part, target in zip(flat, flat_targets, strict=True)
    ]
    return torch.cat(losses).mean()


def build(shape, batch_size, length, device="cuda"):
    """The first iteration of a run, that of the longest sample: a function of nothing."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # what `bf16-true` does while the model is made
    try:
        with torch.device(device):
            model = Model(shape, length)
    finally:
        torch.set_default_dtype(default)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "lora_" in name

    def step():
        tokens = torch.empty(batch_size, length, dtype=torch.int64, device=device)
        targets = torch.empty(batch_size, length, dtype=torch.int64, device=device)
        # Fabric hands a bf16-true model's outputs over in the default format, fp32.
        logits = [part.float() for part in model(tokens)]
        logits[-1] = logits[-1][..., :-1, :]
        loss = chunked_loss(logits, targets[..., 1:])
        (loss / (ACCUMULATED // batch_size)).backward()

    return step
