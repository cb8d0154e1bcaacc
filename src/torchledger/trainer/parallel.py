"""`Parallel`: a model spread over ranks, and what a step on many ranks does that one process does not."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from torchledger.spec import Strategy
from torchledger.trainer.gradient_norm import clip_gradients
from torchledger.trainer.model import Transformer
from torchledger.trainer.parallel_data import replicate, replicate_split, shard
from torchledger.trainer.parallel_tensor import split
from torchledger.trainer.process_group import mesh_of
from torchledger.trainer.targets import Shares

__all__ = ["Parallel"]


class Parallel:
    """A layout in force: device mesh, wrappers, and the collectives around a step. There has to be a process group.

    Data parallel ranks read different rows; tensor parallel ones the same rows, and split the matrices.

    Args:
        strategy: the layout, one that `layout.require_layout` lets through.
        device: of this rank.

    Attributes:
        asked: number of the signal that this rank has got; 0 is none. The next step tells the others.
        told: of the last step, what all ranks have been asked, once they have told each other.
    """

    def __init__(self, strategy: Strategy, device: torch.device) -> None:
        self.strategy, self.device = strategy, device
        self.mesh = _mesh(strategy, device)
        self.asked = 0
        self.told: Float[Tensor, ""] | None = None
        self._wrapped: DistributedDataParallel | None = None
        self._replicated: FSDPModule | None = None

    @property
    def is_sharded(self) -> bool:
        """Whether each rank keeps a share of whole parameters, and of nothing that is split otherwise too."""
        return self.strategy.shard_level > 0 and self.strategy.tensor_parallel == 1

    def split(self, model: Transformer) -> None:
        """Tensor parallelism, before first values are drawn."""
        strategy = self.strategy
        if strategy.tensor_parallel > 1:
            split(model, self.mesh["tensor"], by_tokens=strategy.sequence_parallel)

    def spread(self, model: Transformer) -> None:
        """Data parallelism, once the values are there."""
        strategy = self.strategy
        if strategy.data_parallel == 1:
            return
        if strategy.shard_level:
            hybrid = "replicas" in (self.mesh.mesh_dim_names or ())
            shard(model, self.mesh["replicas", "data"] if hybrid else self.mesh["data"], reshard=strategy.reshard)
        elif strategy.tensor_parallel == 1:
            self._wrapped = replicate(model, self.mesh["data"], self.device)
        else:
            self._replicated = replicate_split(model, self.mesh["data"])

    @contextlib.contextmanager
    def micro_batch(self, *, is_last: bool) -> Iterator[None]:
        """Around forward and backward pass: replicas send their gradients once a step, in the last micro-batch."""
        wrapped = self._wrapped
        if self._replicated is not None:
            self._replicated.set_requires_gradient_sync(is_last)
        waits = contextlib.nullcontext() if wrapped is None or is_last else wrapped.no_sync()
        with waits, self.loss():
            yield

    def loss(self) -> contextlib.AbstractContextManager[Any]:
        """Around whatever computes a loss: of logits that are split, none is gathered."""
        return loss_parallel() if self.strategy.tensor_parallel > 1 else contextlib.nullcontext()

    def forward(self, model: Transformer, *batch: Tensor, **shares: Shares) -> Float[Tensor, ""]:
        """The model's loss, through what is wrapped around it; a plain tensor."""
        # DDP's own forward and no call of it, so that the model stays the root of all names.
        loss = model(*batch, **shares) if self._wrapped is None else self._wrapped.forward(*batch, **shares)  # type: ignore[no-untyped-call]
        return loss.to_local() if isinstance(loss, DTensor) else loss

    @staticmethod
    def evaluated(model: Transformer, *batch: Tensor) -> Float[Tensor, ""]:
        """The loss without a backward pass to come, so that nothing need be wrapped around the model."""
        loss = model(*batch)
        return loss.to_local() if isinstance(loss, DTensor) else loss

    @property
    def data_share(self) -> tuple[int, int]:
        """Which share of the rows this rank has, and how many shares there are."""
        return dist.get_rank() // self.strategy.tensor_parallel, self.strategy.data_parallel

    def together(self, values: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Values of which each data parallel rank has some, the others zero, with all of them on every rank."""
        if dist.get_rank() % self.strategy.tensor_parallel:
            values.zero_()  # ranks that split matrices have the same ones
        dist.all_reduce(values)
        return values

    def added_up(self, counts: list[int]) -> list[int]:
        """Numbers of every rank, added up over those that have other rows; eight bytes each. Waits for the device.

        Of fake tensors there are no sums to read: every rank is then taken to have as many.
        """
        told = torch.tensor(counts, dtype=torch.int64, device=self.device)
        dist.all_reduce(told)
        if isinstance(told, FakeTensor):
            return [count * self.strategy.data_parallel for count in counts]
        return [count // self.strategy.tensor_parallel for count in told.tolist()]

    @torch.no_grad()
    def finish_gradients(self, model: Transformer) -> None:
        """Add up what of a step's gradients is still partial: those of norms that saw a rank's share of tokens."""
        strategy = self.strategy
        if strategy.tensor_parallel == 1:
            return
        partial = [p for p in model.parameters() if isinstance(p.grad, DTensor) and _is_partial(p.grad)]
        for parameter in partial:
            grad = parameter.grad
            assert isinstance(grad, DTensor)
            whole = [Replicate() if each.is_partial() else each for each in grad.placements]
            parameter.grad = grad.redistribute(placements=whole)

    @property
    def overflow(self) -> Callable[[Tensor], None] | None:
        """What makes a number the largest of all ranks, in place; nothing where all have the same gradients whole."""
        strategy = self.strategy
        is_split = strategy.shard_level > 0 or strategy.tensor_parallel > 1
        return partial(dist.all_reduce, op=dist.ReduceOp.MAX) if is_split else None

    def clip(self, model: Transformer, limit: float) -> Float[Tensor, ""]:
        """Clip by the norm of all gradients, which is the same on every rank."""
        return clip_gradients(model.parameters(), limit)

    def agree(self, loss: Float[Tensor, ""]) -> Float[Tensor, ""]:
        """The mean of all ranks' losses; on the way each learns whether any was asked to stop.

        Eight bytes of every rank: its loss over their number, and its signal, as a digit of its own for each signal.
        """
        size = self.strategy.num_ranks
        told = torch.stack((loss / size, loss.new_tensor(_digit(self.asked, size))))
        dist.all_reduce(told)
        self.told = told[1]
        return told[0]

    @property
    def signal(self) -> int:
        """The signal that any rank had got before the last step; 0 is none. Reading it waits for the device."""
        return 0 if self.told is None else _number(self.told.item(), self.strategy.num_ranks)


#: Signals by number, the weightier one last: where ranks have got several, all act on that.
_SIGHUP, _SIGINT, _SIGTERM = 1, 2, 15
_SIGNALS = (_SIGHUP, _SIGINT, _SIGTERM)


def _digit(signal: int, size: int) -> float:
    """A signal as a number that sums over `size` ranks keep apart from the others': a digit to the base size + 1."""
    return float((size + 1) ** _SIGNALS.index(signal)) if signal else 0.0


def _number(total: float, size: int) -> int:
    """The weightiest signal in a sum of digits.

    >>> _number(_digit(_SIGINT, 2) + _digit(_SIGHUP, 2), 2) == _SIGINT
    True
    """
    return next((each for each in reversed(_SIGNALS) if total >= _digit(each, size)), 0)


def _is_partial(tensor: DTensor) -> bool:
    return any(each.is_partial() for each in tensor.placements)


def _mesh(strategy: Strategy, device: torch.device) -> DeviceMesh:
    """Ranks as a grid, tensor parallel ones next to each other (`Strategy`)."""
    group = strategy.shard_group or strategy.data_parallel
    sizes = {"replicas": strategy.data_parallel // group, "data": group, "tensor": strategy.tensor_parallel}
    return mesh_of(device.type, {name: size for name, size in sizes.items() if size > 1})
