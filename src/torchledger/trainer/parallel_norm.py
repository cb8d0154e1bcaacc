"""`NormOverRanks`: a norm over all heads of a projection (OLMo 2, arXiv:2501.00656), of which ranks have some each."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh

from torchledger.trainer.parallel_stream import over_ranks

__all__ = ["NormOverRanks"]


@dataclass(frozen=True, slots=True)
class NormOverRanks:
    """RMSNorm or LayerNorm of vectors that ranks have parts of.

    A token's sum of squares goes around, of LayerNorm its sum first: squares are those of what is left without the
    mean, because a difference of two large sums would lose its digits.

    Attributes:
        mesh: of one dimension.
        size: elements of a whole vector.
    """

    mesh: DeviceMesh
    size: int

    def __call__(
        self, x: Float[Tensor, "... part"], weight: Tensor | None, bias: Tensor | None, *, is_rms: bool, epsilon: float
    ) -> Float[Tensor, "... part"]:
        """This rank's part of the normalized vectors, computed in FP32, in the format of `x`."""
        wide = x.float()
        if not is_rms:
            wide = wide - over_ranks(wide.sum(dim=-1, keepdim=True), self.mesh) / self.size
        square = over_ranks(wide.square().sum(dim=-1, keepdim=True), self.mesh) / self.size
        y = wide * torch.rsqrt(square + epsilon)
        y = y if weight is None else y * weight
        return (y if bias is None else y + bias).to(x.dtype)
