"""Processes that train together: what they tell each other before they are a group, and the group itself."""

import contextlib
import datetime as dt
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store

from torchledger.trainer.ranks import Ranks

__all__ = ["Crew", "process_group"]

_PATIENCE = dt.timedelta(hours=1)  # rank 0 measures the machine before it says anything


@dataclass(frozen=True, slots=True)
class Crew:
    """This process, and the store that all of them reach.

    A process group cannot be there while a rank is traced, so what rank 0 decides goes through the store.

    Attributes:
        ranks: which process this is.
        store: torch's store of keys and values.
    """

    ranks: Ranks
    store: Store

    def tell(self, what: str, value: Any) -> None:
        """Rank 0 says something, once, to all others."""
        assert self.ranks.is_first
        self.store.set(f"torchledger/{what}", json.dumps(value))

    def has_told(self, what: str) -> bool:
        """Whether rank 0 has said it."""
        return self.store.check([f"torchledger/{what}"])

    def hear(self, what: str) -> Any:
        """What rank 0 says; waits until it does.

        Raises:
            RuntimeError: it says nothing for an hour.
        """
        self.store.set_timeout(_PATIENCE)
        return json.loads(self.store.get(f"torchledger/{what}"))


@contextlib.contextmanager
def process_group(crew: Crew | None, device: torch.device) -> Iterator[None]:
    """While inside, the processes are a group; nothing is done for one that is alone.

    Args:
        crew: the processes.
        device: where this one trains; tensors on the CPU go through gloo, those of CUDA through NCCL.
    """
    if crew is None or crew.ranks.is_alone:
        yield
        return
    backend = "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=crew.store, rank=crew.ranks.rank, world_size=crew.ranks.size)
    try:
        yield
        dist.barrier()  # who leaves first cuts the connections of those who are still sending
    finally:
        dist.destroy_process_group()
