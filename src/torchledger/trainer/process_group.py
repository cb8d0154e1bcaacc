"""Processes that train together: what they tell each other before they are a group, and the group itself."""

import contextlib
import datetime as dt
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from torchledger.trainer.ranks import Ranks

__all__ = ["Crew", "divided", "mesh_of", "process_group", "wait_for_connections"]

_PATIENCE = dt.timedelta(hours=1)  # rank 0 measures the machine before it says anything


@dataclass(frozen=True, slots=True)
class Crew:
    """This process, and the store that all of them reach.

    A process group cannot be there while a rank is traced, so what rank 0 decides goes through the store.

    Attributes:
        ranks: which process this is.
        store: torch's store of keys and values. It may end before we do, with the process that started us.
        told: what this rank has told.
    """

    ranks: Ranks
    store: Store
    told: set[str] = field(default_factory=set)

    def tell(self, what: str, value: Any) -> None:
        """Rank 0 says something, once, to all others."""
        assert self.ranks.is_first
        self.store.set(f"torchledger/{what}", json.dumps(value))
        self.told.add(what)

    def hear(self, what: str) -> Any:
        """What rank 0 says; waits until it does.

        Raises:
            RuntimeError: it says nothing for an hour.
        """
        self.store.set_timeout(_PATIENCE)
        return json.loads(self.store.get(f"torchledger/{what}"))


#: Meshes of the group that is there, each made once: a mesh makes groups, and every rank has to make the same ones.
_meshes: dict[tuple[str | DeviceMesh, tuple[tuple[str, int], ...]], DeviceMesh] = {}
_is_ours = False


def mesh_of(device_type: str, sizes: Mapping[str, int]) -> DeviceMesh:
    """The ranks of the group as a grid of named dimensions; the same one while the group is there.

    Args:
        device_type: where tensors are.
        sizes: ranks along each dimension, the last one innermost.
    """
    key = (device_type, tuple(sizes.items()))
    if key in _meshes:
        return _meshes[key]
    mesh = init_device_mesh(device_type, tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    if _is_ours:  # a group that somebody else made may be gone without our knowing
        _meshes[key] = mesh
    return mesh


def divided(mesh: DeviceMesh, sizes: Mapping[str, int]) -> DeviceMesh:
    """A mesh of one dimension as a grid of named dimensions; the same one while the group is there.

    Args:
        mesh: one that `mesh_of` made, or a dimension of it.
        sizes: ranks along each dimension, the last one innermost.
    """
    key = (mesh, tuple(sizes.items()))
    if key in _meshes:
        return _meshes[key]
    grid = mesh._unflatten(0, tuple(sizes.values()), tuple(sizes))  # noqa: SLF001  # the public one divides whole groups
    if _is_ours:
        _meshes[key] = grid
    return grid


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
    global _is_ours  # noqa: PLW0603  # so is torch's own group
    try:
        _is_ours = True
        yield
        dist.barrier()  # who leaves first cuts the connections of those who are still sending
        wait_for_connections()
    finally:
        _is_ours = False
        _meshes.clear()
        dist.destroy_process_group()


#: Name of the threads in which gloo sends, and where Linux tells of a process's threads.
_SENDER, _THREADS = "pt_gloo_runloop", Path("/proc/self/task")


def wait_for_connections(patience_s: float = 10.0) -> None:
    """Wait until gloo's threads have let go of the tensors that they sent.

    They may have the last hold of one, and outlive the group. If they let go while Python ends, it ends the thread in a
    destructor, and C++ aborts the process: "terminate called without an active exception". Where nobody tells what
    threads do, some time has to be enough.

    Args:
        patience_s: how long at most.
    """
    if not _THREADS.is_dir():
        time.sleep(0.1)
        return
    end, idle = time.monotonic() + patience_s, 0
    while idle < 2 and time.monotonic() < end:  # once it may wait for Python itself, which it gets meanwhile
        idle = 0 if _is_sending() else idle + 1
        time.sleep(0.005)


def _is_sending() -> bool:
    """Whether any of gloo's threads does anything but wait."""
    for thread in _THREADS.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            name, _, rest = (thread / "stat").read_text(encoding="utf-8").partition("(")[2].rpartition(")")
            if name == _SENDER and rest.split()[0] != "S":
                return True
    return False
