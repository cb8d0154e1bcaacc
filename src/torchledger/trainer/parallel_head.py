"""`RowsOfHead`: ranks that each have some rows of the head, and a loss for which nobody needs whole logits.

Of each token the ranks tell each other the largest logit, the sum of exponentials and the target's logit (Megatron-LM,
Shoeybi et al., arXiv:1909.08053, section 3).
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import Placement

from torchledger.trainer.parallel_stream import gathered

__all__ = ["RowsOfHead"]


@dataclass(frozen=True, slots=True)
class RowsOfHead:
    """This rank's share of the vocabulary.

    Attributes:
        mesh: of one dimension.
        stream: how the ranks share the tokens that the head reads.
        size: rows of all ranks together.
        first: number of this rank's first one.
    """

    mesh: DeviceMesh
    stream: Placement
    size: int
    first: int

    def read(self, h: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        """All tokens; the gradient is a share that the ranks add up."""
        return gathered(h, self.mesh, self.stream)

    def logits(self, mine: Float[Tensor, "batch length rows"]) -> Float[Tensor, "batch length vocabulary"]:
        """All logits as one tensor in shares, for `torch.distributed.tensor.parallel.loss_parallel`."""
        shape = torch.Size((*mine.shape[:-1], self.size))
        stride = torch.empty(shape, device="meta").stride()
        return DTensor.from_local(mine, self.mesh, [Shard(mine.ndim - 1)], run_check=False, shape=shape, stride=stride)

    def largest(self, mine: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """In place."""
        dist.all_reduce(mine, dist.ReduceOp.MAX, group=self.mesh.get_group())
        return mine

    def added(self, mine: Float[Tensor, " tokens"]) -> Float[Tensor, " tokens"]:
        """In place."""
        dist.all_reduce(mine, group=self.mesh.get_group())
        return mine
