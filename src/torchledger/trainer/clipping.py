"""Clipping by the norm of all gradients, in FP32 whatever they are stored in."""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

__all__ = ["clip"]


@torch.no_grad()
def clip(parameters: Iterable[Tensor], limit: float) -> Float[Tensor, ""]:
    """Scale all gradients so that their norm is at most `limit` (Pascanu et al., arXiv:1211.5063, algorithm 1).

    torch's `clip_grad_norm_` rounds norms to the gradients' format: in BF16 a norm of 1.01 is told as 1.0078, and what
    was clipped is off by as much. FP32 gradients go through it, bit for bit.

    Returns:
        The norm before.
    """
    moved = [parameter for parameter in parameters if parameter.grad is not None]
    gradients = [parameter.grad for parameter in moved if parameter.grad is not None]
    if all(gradient.dtype == torch.float32 for gradient in gradients):
        return torch.nn.utils.clip_grad_norm_(moved, limit)
    norms = torch._foreach_norm(gradients, 2.0, torch.float32)  # noqa: SLF001  # what torch's own norm calls, with a format
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    torch.nn.utils.clip_grads_with_norm_(moved, limit, total)
    return total
