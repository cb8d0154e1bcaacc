"""Tables that ranks share: each has some rows of the vocabulary, or looks up the positions of its own tokens."""

from dataclasses import dataclass

from jaxtyping import Float, Int
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.placement_types import Placement
from torch.nn import functional

from torchledger.trainer.parallel_stream import summed

__all__ = ["RowsOfTable", "TokensOfTable"]


@dataclass(frozen=True, slots=True)
class RowsOfTable:
    """This rank's share of the vocabulary: of other tokens it has zeros, and the sum of all ranks is the stream.

    A rank's gradient is of its own rows alone (Megatron-LM, Shoeybi et al., arXiv:1909.08053, section 3).

    Attributes:
        mesh: of one dimension.
        stream: how the ranks share the tokens.
        first: number of this rank's first row.
    """

    mesh: DeviceMesh
    stream: Placement
    first: int

    def look_up(
        self, ids: Int[Tensor, "batch length"], weight: Float[Tensor, "rows width"]
    ) -> Float[Tensor, "batch share width"]:
        """This rank's share of the stream."""
        local = ids - self.first
        elsewhere = (local < 0) | (local >= len(weight))
        found = functional.embedding(local.masked_fill_(elsewhere, 0), weight)
        return summed(found.masked_fill_(elsewhere.unsqueeze(-1), 0), self.mesh, self.stream)


@dataclass(frozen=True, slots=True)
class TokensOfTable:
    """A whole table on every rank, of which each looks up its own tokens (sequence parallelism).

    Attributes:
        mesh: of one dimension.
    """

    mesh: DeviceMesh

    def look_up(self, ids: Int[Tensor, " length"], weight: Float[Tensor, "rows width"]) -> Float[Tensor, "share width"]:
        """Those of this rank's tokens."""
        return functional.embedding(ids.chunk(self.mesh.size())[self.mesh.get_local_rank()], weight)
