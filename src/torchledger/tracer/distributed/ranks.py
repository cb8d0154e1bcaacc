"""`ranks`: this process is rank r of n, and nothing is sent."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from torchledger.tracer.distributed import pipelining, reducer
from torchledger.tracer.distributed.watching import patched, without_modes
from torchledger.tracer.errors import TraceError
from torchledger.tracer.result import Trace

_contexts = itertools.count(1)


@contextlib.contextmanager
def ranks(world_size: int, rank: int = 0, *, ranks_per_host: int = 8) -> Iterator[None]:
    """While this is on, this process is one rank of a distributed run under torch's fake process group.

    `torch.distributed` is set up, so is the environment that `torchrun` would give (`RANK`, `LOCAL_RANK`, ...);
    `init_process_group` and `destroy_process_group` of the code inside do nothing more. Device meshes of any device
    type stand on the CPU. At the end everything is as it was.

    Args:
        world_size: ranks in all.
        rank: which one this is, from 0.
        ranks_per_host: ranks on one host: `LOCAL_RANK` counts within it.

    Raises:
        TraceError: there is a process group already, torch was built without torch.distributed, or no such rank.
    """
    import torch.distributed as dist  # a second that only distributed runs need

    if not dist.is_available():
        raise TraceError("this build of torch has no torch.distributed", remedy="Install one that has it")
    if dist.is_initialized():
        raise TraceError(
            "a process group is there already, whose collectives would be called",
            remedy="Trace before init_process_group, or after destroy_process_group",
        )
    if not 0 <= rank < world_size:
        raise TraceError(f"there is no rank {rank} of {world_size}", remedy=f"Ranks are 0 to {max(world_size, 1) - 1}")
    from torch.distributed import device_mesh, distributed_c10d  # as above
    from torch.testing._internal.distributed.fake_pg import FakeStore  # as above

    from torchledger.tracer.distributed.done import forget  # as above

    store = FakeStore()
    with contextlib.ExitStack() as patches:
        distributed_c10d.init_process_group("fake", store=store, rank=rank, world_size=world_size)
        patches.callback(forget)
        patches.callback(distributed_c10d.destroy_process_group)
        patches.enter_context(_environment(world_size, rank, ranks_per_host))
        for owner, name, wrap in _patches(dist, device_mesh):
            patches.enter_context(patched(owner, name, wrap))
        yield


def of_this_rank(trace: Trace) -> Trace:
    """The trace, told which rank of how many it is of: that of `ranks`, or rank 0 of 1."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return trace
    return replace(trace, rank=distributed.get_rank(), world_size=distributed.get_world_size())


def _patches(dist: Any, device_mesh: Any) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Functions of torch that do something else meanwhile."""
    from torch.distributed.fsdp._fully_shard import _fsdp_init, _fully_shard

    context = next(_contexts)
    yield dist, "init_process_group", lambda _: _nothing
    yield dist, "destroy_process_group", lambda _: _nothing
    yield from reducer.patches()
    yield from pipelining.patches()
    yield _fsdp_init, "_get_post_forward_mesh_info", without_modes
    yield _fully_shard, "_get_post_forward_mesh_info", without_modes
    mesh = device_mesh.DeviceMesh
    yield mesh, "__init__", lambda init: _on_the_cpu(init, context)
    # A mesh is made of real tensors that hold real numbers of ranks.
    for name in ("__getitem__", "_flatten", "_unflatten", "_concatenate", "from_group", "_get_all_submeshes"):
        if hasattr(mesh, name):
            yield mesh, name, _unseen(vars(mesh)[name])


def _unseen(descriptor: Any) -> Callable[[Any], Any]:
    wrapped = without_modes(getattr(descriptor, "__func__", descriptor))
    return lambda _: type(descriptor)(wrapped) if isinstance(descriptor, (staticmethod, classmethod)) else wrapped


def _on_the_cpu(init: Callable[..., Any], context: int) -> Callable[..., Any]:
    """A mesh of any accelerator is one of CPUs, equal to no mesh of another run: torch caches what it finds by mesh."""

    def made(mesh: Any, device_type: str, ranks: Any = None, **kwargs: Any) -> None:
        del device_type
        numbers = kwargs.pop("_rank_map", None)
        if isinstance(numbers, FakeTensor):  # `init_device_mesh` has counted 0, 1, 2 ... on a fake tensor
            numbers = range(numbers.numel())
        ranks = kwargs.pop("mesh", ranks)
        if isinstance(ranks, FakeTensor):
            raise TraceError("a device mesh is made of a tensor, which has no data here", remedy="Give it a list")
        with _disable_current_modes():
            numbers = torch.tensor(numbers, dtype=torch.int) if isinstance(numbers, range) else numbers
            init(mesh, "cpu", ranks, _rank_map=numbers, **kwargs)
        mesh._thread_id = context  # noqa: SLF001  # the one part of a mesh's identity that is not its shape
        mesh._hash = None  # noqa: SLF001  # as above

    return made


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None


@contextlib.contextmanager
def _environment(world_size: int, rank: int, ranks_per_host: int) -> Iterator[None]:
    """The variables that torchrun sets, for the user's code to read."""
    variables = {
        "RANK": rank,
        "WORLD_SIZE": world_size,
        "LOCAL_RANK": rank % ranks_per_host,
        "LOCAL_WORLD_SIZE": min(ranks_per_host, world_size),
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29500",
    }
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update({name: str(value) for name, value in variables.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
