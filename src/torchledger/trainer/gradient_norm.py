"""The true norm of all gradients of a model whose ranks hold shards of them; one number is sent a mesh dimension.

torch's own `clip_grad_norm_` on DTensors sends a number for every parameter, and a norm that is left as it comes is
that of one rank's shards, short by the square root of their number (github.com/pytorch/pytorch/issues/170862).
"""

from collections.abc import Iterable

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed.tensor import DTensor

__all__ = ["clip_gradients", "gradient_norm"]

#: Mesh dimensions along which a tensor is sharded: each by its place in the mesh, and the ranks of it. Those of one
#: place need not be the same ones: of key-value heads there may be fewer than of tensor parallel ranks.
_Dimensions = tuple[tuple[int, dist.ProcessGroup], ...]


@torch.no_grad()
def gradient_norm(gradients: Iterable[Tensor]) -> Float[Tensor, ""]:
    """The 2-norm over all elements of all gradients, each counted once; the same on every rank.

    Squares are added up over the shards of a rank, then over each mesh dimension along which tensors are sharded,
    together with those that are whole there. Where nothing is sharded, it is that of one process (`clipping.clip`), bit
    for bit.
    """
    sharded: dict[_Dimensions, list[Tensor]] = {}
    for gradient in gradients:
        dimensions: _Dimensions = ()
        local = gradient
        if isinstance(gradient, DTensor):
            shards = [i for i, each in enumerate(gradient.placements) if not each.is_replicate()]
            dimensions = tuple((i, gradient.device_mesh.get_group(i)) for i in shards)
            local = gradient.to_local()
        sharded.setdefault(dimensions, []).append(local)
    if list(sharded) == [()]:
        return _norm(sharded[()])
    return _summed({dimensions: _square(shards) for dimensions, shards in sharded.items()}).sqrt()


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], limit: float) -> Float[Tensor, ""]:
    """Scale all gradients so that their norm is at most `limit`; gives back the norm before."""
    gradients = [each.grad for each in parameters if each.grad is not None]
    norm = gradient_norm(gradients)
    factor = torch.clamp(limit / (norm + 1e-6), max=1.0)
    torch._foreach_mul_([each.to_local() if isinstance(each, DTensor) else each for each in gradients], factor)
    return norm


def _norm(tensors: list[Tensor]) -> Tensor:
    """In FP32, whatever they are stored in: torch's own would round it to their format (`clipping.clip`)."""
    if all(each.dtype == torch.float32 for each in tensors):
        return torch.nn.utils.get_total_norm(tensors)
    norms = torch._foreach_norm(tensors, 2.0, torch.float32)  # noqa: SLF001  # what torch's own calls, with a format
    total: Tensor = torch.linalg.vector_norm(torch.stack(norms))
    return total


def _square(shards: list[Tensor]) -> Tensor:
    norm = _norm(shards)
    return norm * norm


def _summed(squares: dict[_Dimensions, Tensor]) -> Tensor:
    """Add up along the last mesh dimension that anything is sharded on, then along those before it."""
    while any(squares):
        last = max(dimensions[-1][0] for dimensions in squares if dimensions)
        sums: dict[_Dimensions, Tensor] = {}
        for dimensions, square in squares.items():
            rest = dimensions
            if dimensions and dimensions[-1][0] == last:
                dist.all_reduce(square, group=dimensions[-1][1])
                rest = dimensions[:-1]
            sums[rest] = sums[rest] + square if rest in sums else square
        squares = sums
    return squares[()]
