"""How tensor parallel ranks hold key-value heads: some heads each, or, of fewer than there are ranks, several the same.

Whoever splits the query heads of a group holds the key-value head that they share, as vLLM has it (`QKVParallelLinear`:
tp / K replicas of each), where Megatron-LM cuts within a head and gathers it for every pass. No head is sent, then;
each copy sees the queries of its own rank, so that its gradient is a share, which is added up over the copies.
"""

from dataclasses import dataclass
from typing import Self

from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import Placement

from torchledger.trainer.process_group import divided

__all__ = ["HeadLayout"]


@dataclass(frozen=True, slots=True)
class HeadLayout:
    """What the rows of a matrix that makes heads are laid out on.

    Attributes:
        mesh: of one dimension, or of two: ranks with other heads, and inside of it those with the same ones.
        placements: along each.
        copies: ranks that hold the same head.
    """

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    copies: int = 1

    @classmethod
    def of(cls, mesh: DeviceMesh, num_heads: int) -> Self:
        """The layout of so many heads; ranks next to each other share one where there are fewer.

        Args:
            mesh: of one dimension, whose size divides the heads or is a multiple of them.
            num_heads: key-value heads of the whole model.
        """
        copies = max(1, mesh.size() // num_heads)
        if copies == 1:
            return cls(mesh, (Shard(0),))
        if num_heads == 1:
            return cls(mesh, (Replicate(),), copies)
        both = divided(mesh, {"heads": num_heads, "copies": copies})
        return cls(both, (Shard(0), Replicate()), copies)
