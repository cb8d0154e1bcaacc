"""Normalization over the last dimension: RMSNorm or LayerNorm, with or without a weight."""

from dataclasses import replace
from typing import Protocol

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from torchledger.spec import NormSpec
from torchledger.trainer.held import held

__all__ = ["Norm", "OverRanks", "weighted"]


def weighted(spec: NormSpec) -> NormSpec:
    """The norm of heads and latents: the model's kind, always with a weight and never with a bias."""
    return replace(spec, affine=True, bias=False)


class OverRanks(Protocol):
    """A norm of vectors that ranks have parts of (`parallel_norm`)."""

    def __call__(
        self, x: Float[Tensor, "... part"], weight: Tensor | None, bias: Tensor | None, *, is_rms: bool, epsilon: float
    ) -> Float[Tensor, "... part"]:
        """This rank's part of the normalized vectors, by the mean and square of the whole."""
        ...


class Norm(nn.Module):
    """RMSNorm (Zhang and Sennrich, arXiv:1910.07467, eq. 4) or LayerNorm (Ba et al., arXiv:1607.06450, eq. 4).

    It computes in the format of its weight, float32 under autocast, and returns that: a half precision input is cast
    first. Without a weight it computes in the format of its input.

    Args:
        size: width of the last dimension.
        spec: which of the two, and whether there are a weight and a bias. `unit_offset` applies 1 + weight.

    Attributes:
        sums: whether this rank's gradient of a whole weight is a share of a sum over ranks (`held`).
        over_ranks: how it normalizes what ranks have parts of; nothing where it has the whole.
    """

    sums: bool = False
    over_ranks: OverRanks | None = None

    def __init__(self, size: int, spec: NormSpec) -> None:
        super().__init__()
        self.size = size
        self.is_rms = spec.kind == "rms"
        self.epsilon = spec.epsilon
        self.unit_offset = spec.unit_offset
        has_bias = spec.affine and spec.bias and not self.is_rms
        self.weight = nn.Parameter(torch.empty(size)) if spec.affine else None
        self.bias = nn.Parameter(torch.empty(size)) if has_bias else None

    def forward(self, x: Float[Tensor, "... size"]) -> Float[Tensor, "... size"]:
        """Normalize the last dimension of `x`."""
        weight, bias = held(self.weight, sums=self.sums), held(self.bias, sums=self.sums)
        if weight is not None:
            x = x.to(weight.dtype)
            weight = 1 + weight if self.unit_offset else weight
        if self.over_ranks is not None:
            return self.over_ranks(x, weight, bias, is_rms=self.is_rms, epsilon=self.epsilon)
        if self.is_rms:
            return functional.rms_norm(x, (self.size,), weight, self.epsilon)
        return functional.layer_norm(x, (self.size,), weight, bias, self.epsilon)

    def extra_repr(self) -> str:
        """What `print(model)` shows."""
        return f"{'rms' if self.is_rms else 'layer'}, {self.size}, epsilon={self.epsilon}"
