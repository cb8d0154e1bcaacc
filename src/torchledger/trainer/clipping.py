"""Clipping by the norm of all gradients, in FP32 whatever they are stored in."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["clip"]


@torch.no_grad()
def clip(parameters: Iterable[Tensor], limit: float) -> Float[Tensor, ""]:
    """Scale all gradients so that their norm is at most `limit` (Pascanu et al., arXiv:1211.5063, algorithm 1).

    FP32 gradients come out as torch's `clip_grad_norm_` leaves them, bit for bit; but it makes lists of them on GPUs
    only, without which a small model's take twice as long. And it rounds norms to the gradients' format: in BF16 a norm
    of 1.01 is told as 1.0078, and what was clipped is off by as much.

    Returns:
        The norm before; 0 where nothing has a gradient.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    if not gradients:
        return torch.zeros(())
    norms = torch._foreach_norm(gradients, 2.0, torch.float32)  # noqa: SLF001  # what torch's own norm calls, with a format
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    factor = torch.clamp(limit / (total + 1e-6), max=1.0)
    torch._foreach_mul_(gradients, factor)
    return total
