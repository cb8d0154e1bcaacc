"""How a model knows where a token stands: rotary tables and their extensions, ALiBi's slopes, causal masks."""

import math
from collections.abc import Mapping

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from torchledger.spec import ModelSpec, SpecError

__all__ = ["Rotary", "alibi_slopes", "causal_mask", "rotate"]


class Rotary(nn.Module):
    """Tables of the rotary embedding (RoFormer, arXiv:2104.09864, eq. 34), a row for each position, float32.

    They are buffers that a checkpoint leaves out, since the spec determines them.

    Args:
        spec: the model; its `rotary_size` dimensions of each head are rotated.
        theta: base of the frequencies.
        scaling: name and factors of an extension; empty is none.
        num_positions: rows of the tables.

    Raises:
        SpecError: an extension that is not built.
    """

    cos: Tensor
    sin: Tensor

    def __init__(self, spec: ModelSpec, theta: float, scaling: Mapping[str, float | str], num_positions: int) -> None:
        super().__init__()
        frequencies, amplitude = _frequencies(spec, theta, scaling)
        positions = torch.arange(num_positions, dtype=torch.float32)
        angles = torch.outer(positions, frequencies).repeat(1, 2)
        self.register_buffer("cos", angles.cos() * amplitude, persistent=False)
        self.register_buffer("sin", angles.sin() * amplitude, persistent=False)

    def forward(self, length: int) -> tuple[Float[Tensor, "length 1 rotary"], Float[Tensor, "length 1 rotary"]]:
        """Cosines and sines of the first `length` positions, the same for every head."""
        return rearrange(self.cos[:length], "t r -> t 1 r"), rearrange(self.sin[:length], "t r -> t 1 r")


def rotate(
    x: Float[Tensor, "batch length heads size"],
    tables: tuple[Float[Tensor, "length 1 rotary"], Float[Tensor, "length 1 rotary"]],
) -> Float[Tensor, "batch length heads size"]:
    """Rotate the first `rotary` dimensions of each head; dimension i is paired with i + rotary/2 ("rotate half").

    The arithmetic is in the tables' format (float32): rounding a position's angle to bfloat16 would move tokens. The
    result is in the format of `x`.
    """
    cos, sin = tables
    size = cos.shape[-1]
    turned, plain = x[..., :size].to(cos.dtype), x[..., size:]
    first, second = turned.chunk(2, dim=-1)
    turned = (turned * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)
    return turned if plain.shape[-1] == 0 else torch.cat((turned, plain), dim=-1)


def alibi_slopes(num_heads: int) -> Float[Tensor, " heads"]:
    """ALiBi's slope of each head (arXiv:2108.12409, section 3): 2^(-8/H), 2^(-16/H), ... for H a power of two.

    For another H, those of the largest power of two below it, then every other one of its double, as in the authors'
    code.

    >>> alibi_slopes(4).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    whole = 2 ** int(math.log2(num_heads))
    slopes = [2.0 ** (-8 * (i + 1) / whole) for i in range(whole)]
    slopes += [2.0 ** (-4 * (i + 1) / whole) for i in range(0, 2 * (num_heads - whole), 2)]
    return torch.tensor(slopes)


def causal_mask(  # noqa: PLR0917  # what a mask depends on
    length: int,
    window: int,
    slopes: Float[Tensor, " heads"] | None,
    like: Tensor,
    dtype: torch.dtype,
    documents: Int[Tensor, "batch length"] | None = None,
) -> Float[Tensor, "*batch heads_or_1 length length"]:
    """What is added to the scores: 0 (or ALiBi's -slope·distance) where a token may look, -inf where it may not.

    Args:
        length: tokens T.
        window: how many tokens back it may look, itself included; 0 is all of them.
        slopes: ALiBi's, or nothing.
        like: a tensor on the device wanted.
        dtype: format of the scores.
        documents: number of the document that each token belongs to, where it may look at its own only; the mask is
            then one for each sequence.
    """
    positions = torch.arange(length, device=like.device)
    distance = rearrange(positions, "i -> 1 i 1") - rearrange(positions, "j -> 1 1 j")
    hidden = (distance < 0) | (distance >= window) if window else distance < 0
    if documents is not None:
        own = rearrange(documents, "b i -> b 1 i 1") == rearrange(documents, "b j -> b 1 1 j")
        hidden = hidden | ~own
    if slopes is None:
        mask = torch.zeros(hidden.shape, device=like.device, dtype=dtype)
        return mask.masked_fill_(hidden, -math.inf)
    bias = rearrange(-slopes, "h -> h 1 1") * distance
    if documents is not None:
        return bias.masked_fill(hidden, -math.inf).to(dtype)
    return bias.masked_fill_(hidden, -math.inf).to(dtype)


def _frequencies(spec: ModelSpec, theta: float, scaling: Mapping[str, float | str]) -> tuple[Tensor, float]:
    """Inverse frequencies [rotary/2], and what cosines and sines are multiplied with."""
    size = spec.rotary_size
    frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    kind = scaling.get("kind")
    if kind is None:
        return frequencies, 1.0
    if kind not in {"linear", "llama3", "yarn"}:
        raise SpecError(f"{spec.name}: position.scaling: kind {kind!r} is not built; there are linear, llama3 and yarn")
    factor = _number(scaling, "factor")
    if kind == "linear":  # position interpolation, Chen et al., arXiv:2306.15595, eq. 4
        return frequencies / factor, 1.0
    original = _number(scaling, "original_max_position_embeddings", spec.max_sequence_length / factor)
    if kind == "llama3":
        return _llama3(frequencies, factor, original, scaling), 1.0
    return _yarn(frequencies, theta, factor, original, scaling)


def _llama3(frequencies: Tensor, factor: float, original: float, scaling: Mapping[str, float | str]) -> Tensor:
    """Llama 3.1: wavelengths beyond the original context are stretched by `factor`, short ones left, ramp in between.

    Source: `apply_scaling` in the reference code of Llama 3.1 (github.com/meta-llama/llama-models).
    """
    low, high = _number(scaling, "low_freq_factor", 1.0), _number(scaling, "high_freq_factor", 4.0)
    turns = original * frequencies / (2 * math.pi)  # how often a dimension turns within the original context
    share = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies / factor * (1 - share) + frequencies * share


def _yarn(
    frequencies: Tensor, theta: float, factor: float, original: float, scaling: Mapping[str, float | str]
) -> tuple[Tensor, float]:
    """YaRN (Peng et al., arXiv:2309.00071): eqs. 17 to 20 for the ramp over dimensions, eq. 22 for the amplitude.

    DeepSeek's `mscale` and `mscale_all_dim` replace the amplitude by the ratio of theirs.
    """
    size = 2 * len(frequencies)

    def dimension(turns: float) -> float:
        """The dimension that turns `turns` times within the original context."""
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension(_number(scaling, "beta_fast", 32.0))), 0)
    high = min(math.ceil(dimension(_number(scaling, "beta_slow", 1.0))), size - 1)
    ramp = ((torch.arange(len(frequencies), dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    amplitude = _yarn_amplitude(factor, _number(scaling, "mscale", 1.0))
    if "mscale_all_dim" in scaling:
        amplitude /= _yarn_amplitude(factor, _number(scaling, "mscale_all_dim"))
    return frequencies / factor * ramp + frequencies * (1 - ramp), amplitude


def _yarn_amplitude(factor: float, mscale: float) -> float:
    return 0.1 * mscale * math.log(factor) + 1 if factor > 1 else 1.0


def _number(scaling: Mapping[str, float | str], key: str, default: float | None = None) -> float:
    value = scaling.get(key, default)
    if not isinstance(value, (int, float)):
        raise SpecError(f"position.scaling needs a number under {key!r}; it has {dict(scaling)}")
    return float(value)
