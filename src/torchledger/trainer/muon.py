"""Muon: a matrix moves along its momentum made orthogonal."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from torchledger.trainer.in_shares import gathered

__all__ = ["Muon", "is_orthogonalized", "orthogonal"]

#: Momentum where the recipe names none (Moonlight, arXiv:2502.16982, section 2.1).
MOMENTUM = 0.95
#: a, b, c of x ↦ a·x + b·x³ + c·x⁵, which brings singular values near 1 in five steps (the same, equation 2 and below).
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5
SMALLEST_NORM = 1e-7
#: Root mean square of AdamW's updates, which a matrix's updates are scaled to (the same, equation 4).
RMS = 0.2


@dataclass(frozen=True, slots=True)
class Muon:
    """Muon with Nesterov momentum, its updates as large as AdamW's (Moonlight, arXiv:2502.16982, equations 1 and 4)."""

    momentum: float = MOMENTUM

    def initial_state(self, parameter: Tensor, moment: torch.dtype) -> dict[str, Tensor]:
        """The running average of gradients."""
        return {"momentum_buffer": torch.zeros_like(parameter, dtype=moment)}

    def update(
        self, parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], learning_rate: float, decay: float
    ) -> None:
        """In order m ← μ·m + (1 - μ)·g, o = NS(μ·m + (1 - μ)·g), p ← p·(1 - lr·wd) - lr·0.2·√max(out, in)·o."""
        mean = state["momentum_buffer"].lerp_(gradient, 1 - self.momentum)
        direction = _in_shares(torch.lerp(gradient, mean, self.momentum))
        if decay:
            parameter.mul_(1 - learning_rate * decay)
        parameter.add_(direction, alpha=-learning_rate * RMS * math.sqrt(max(parameter.shape)))


def _in_shares(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """`orthogonal` of a matrix that ranks may hold shares of: gathered, the same on each of them, its share kept."""
    if not hasattr(matrix, "full_tensor"):  # no DTensor, whose import alone takes a second
        return orthogonal(matrix)
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(matrix, DTensor)
    mesh, placements = matrix.device_mesh, matrix.placements
    shape, offset = compute_local_shape_and_global_offset(matrix.shape, mesh, placements)
    whole = orthogonal(gathered(matrix))
    own = whole[tuple(slice(begin, begin + size) for begin, size in zip(offset, shape, strict=True))]
    shares: Tensor = DTensor.from_local(
        own.contiguous(), mesh, placements, run_check=False, shape=matrix.shape, stride=matrix.stride()
    )
    return shares


def is_orthogonalized(name: str, parameter: Tensor) -> bool:
    """Whether Muon moves a parameter: matrices of layers. Tables, head and vectors are AdamW's (section 2.2)."""
    return parameter.ndim == 2 and name.startswith(("layers.", "prediction."))


def orthogonal(matrix: Float[Tensor, "rows columns"]) -> Float[Tensor, "rows columns"]:
    """U Vᵀ of the matrix U S Vᵀ, roughly: singular values between about 0.7 and 1.2, in BF16 (Newton-Schulz)."""
    is_tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.bfloat16()
    x = x.T if is_tall else x
    x.div_(x.norm().clamp(min=SMALLEST_NORM))
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if is_tall else x
