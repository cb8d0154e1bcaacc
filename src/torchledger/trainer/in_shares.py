"""Which part of a tensor this rank has: written where values come from a file, and for update rules that need sums."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import torch
from jaxtyping import Float
from torch import Tensor

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from torch.distributed.tensor import DTensor

__all__ = ["Shares", "gathered", "has_part", "mine", "put"]


def mine(tensor: Tensor) -> Tensor:
    """What this rank has of a tensor, to read or to write; of one that is whole, itself. Under no gradient."""
    if not hasattr(tensor, "placements"):  # no DTensor, whose import alone takes a second
        return tensor
    assert not torch.is_grad_enabled()
    from torch.distributed.tensor import DTensor

    assert isinstance(tensor, DTensor)
    return tensor.to_local()


def put(tensor: Tensor, values: Tensor, offset: Sequence[int] = ()) -> None:
    """Copy what this rank has a place for; the rest of `values` is not looked at, so that of a file it is not read.

    Args:
        tensor: a whole tensor or a DTensor of any layout, written in place.
        values: the whole tensor's, or a piece of them.
        offset: where in the whole tensor the piece begins; nothing is at its beginning.
    """
    if (both := _overlap(tensor, values.shape, offset)) is not None:
        into, out_of = both
        mine(tensor)[into].copy_(values[out_of])


def gathered(tensor: Tensor) -> Tensor:
    """All of a tensor, on every rank: from the ranks of one mesh dimension after the other.

    Those come first that split what the others had split before: FSDP2's of a tensor parallel share, else the later
    ones. `full_tensor` sends the same, and warns where there are two.
    """
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.placement_types import _StridedShard

    assert isinstance(tensor, DTensor)
    placements = list(tensor.placements)
    order = sorted(range(len(placements)), key=lambda i: (isinstance(placements[i], _StridedShard), i), reverse=True)
    for i in order:
        placements[i] = Replicate()
        tensor = tensor.redistribute(placements=placements)
    return tensor.to_local()


def has_part(tensor: Tensor, shape: Sequence[int], offset: Sequence[int]) -> bool:
    """Whether this rank has any of a piece of so many elements that begins there in the whole tensor."""
    return _overlap(tensor, shape, offset) is not None


def _overlap(
    tensor: Tensor, shape: Sequence[int], offset: Sequence[int]
) -> tuple[tuple[slice, ...], tuple[slice, ...]] | None:
    """Where in this rank's part a piece goes, and where in the piece that is; nothing where they do not meet."""
    own, piece_at = mine(tensor), tuple(offset) or (0,) * len(shape)
    begins = _offset(tensor)
    into, out_of = [], []
    for size, begin, piece_size, piece_begin in zip(own.shape, begins, shape, piece_at, strict=True):
        first, last = max(begin, piece_begin), min(begin + size, piece_begin + piece_size)
        if first >= last:
            return None
        into.append(slice(first - begin, last - begin))
        out_of.append(slice(first - piece_begin, last - piece_begin))
    return tuple(into), tuple(out_of)


def _offset(tensor: Tensor) -> tuple[int, ...]:
    """Where in the whole tensor this rank's part begins."""
    if not hasattr(tensor, "placements"):
        return (0,) * tensor.ndim
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    assert isinstance(tensor, DTensor)
    _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
    return tuple(offset)


@dataclass(frozen=True, slots=True)
class Shares:
    """How ranks share a tensor.

    Attributes:
        shape: sizes of the whole.
        groups: by dimension, the process groups whose ranks split it.
        like: the tensor, a DTensor.
    """

    shape: tuple[int, ...]
    groups: tuple[tuple["ProcessGroup", ...], ...]
    like: "DTensor"

    @classmethod
    def of(cls, tensor: Tensor) -> Self | None:
        """How ranks share a DTensor, which may be whole on each; nothing of a plain tensor."""
        if not hasattr(tensor, "placements"):
            return None
        from torch.distributed.tensor import DTensor

        assert isinstance(tensor, DTensor)
        mesh = tensor.device_mesh
        groups = tuple(
            tuple(mesh.get_group(i) for i, each in enumerate(tensor.placements) if getattr(each, "dim", None) == dim)
            for dim in range(tensor.ndim)
        )
        return cls(tuple(tensor.shape), groups, tensor)

    @property
    def offset(self) -> tuple[int, ...]:
        """Where in the whole this rank's part begins."""
        return _offset(self.like)

    def added(self, values: Sequence[Float[Tensor, "..."]], dims: Sequence[int]) -> list[Float[Tensor, "..."]]:
        """Values of which each rank has a part of a sum, summed over the ranks that split these dimensions.

        They travel together; where nobody splits these dimensions they are sums already.
        """
        found = list(values)
        groups = [group for dim in dims for group in self.groups[dim]]
        if not groups:
            return found
        sent = torch.cat([each.reshape(-1) for each in found])
        for group in groups:
            torch.distributed.all_reduce(sent, group=group)
        return [
            part.view(each.shape)
            for part, each in zip(torch.split(sent, [e.numel() for e in found]), found, strict=True)
        ]

    def largest(self, values: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        """The largest of all ranks' values, in place."""
        for group in (group for groups in self.groups for group in groups):
            torch.distributed.all_reduce(values, torch.distributed.ReduceOp.MAX, group=group)
        return values

    def beside(self, shape: Sequence[int], dtype: torch.dtype, value: float = 0) -> Tensor:
        """A tensor with one value everywhere, shared as this one is along its dimensions of the same size.

        Dimensions of another size are whole on every rank.

        Args:
            shape: as many sizes as this one has.
            dtype: format.
            value: of every element.
        """
        from torch.distributed.tensor import DTensor, Replicate

        is_shared = [size == whole for size, whole in zip(shape, self.shape, strict=True)]
        own = mine(self.like)
        local = [have if shared else size for have, shared, size in zip(own.shape, is_shared, shape, strict=True)]
        placements = [
            each if (dim := getattr(each, "dim", None)) is None or is_shared[dim] else Replicate()
            for each in self.like.placements
        ]
        made: Tensor = DTensor.from_local(
            torch.full(local, value, dtype=dtype, device=own.device),
            self.like.device_mesh,
            placements,
            run_check=False,
            shape=torch.Size(shape),
            stride=torch.empty(tuple(shape), device="meta").stride(),
        )
        return made

    def in_turn(self, size: int, dtype: torch.dtype) -> Tensor:
        """A vector of zeros, cut evenly among the ranks that split this tensor."""
        from torch.distributed.tensor import Replicate, Shard, zeros

        splits = [Replicate() if getattr(each, "dim", None) is None else Shard(0) for each in self.like.placements]
        made: Tensor = zeros(size, dtype=dtype, device_mesh=self.like.device_mesh, placements=splits)
        return made

    @staticmethod
    def keep(vector: Tensor, whole: Tensor) -> None:
        """Write this rank's cut of `whole` into `vector`, which `in_turn` made."""
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(vector, DTensor)
        vector.copy_(distribute_tensor(whole, vector.device_mesh, vector.placements, src_data_rank=None))
