"""What only the distributed code itself knows of its buffers: whose they are, and what is bookkeeping."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torchledger.tracer.distributed import offloading, streams

if TYPE_CHECKING:
    from torchledger.tracer.recorder import Recorder


@contextlib.contextmanager
def watching(recorder: Recorder) -> Iterator[None]:
    """While this is on, FSDP tells the recorder whose parameters it gathers. It needs a process group."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        yield
        return
    with contextlib.ExitStack() as patches:
        for owner, name, wrap in _patches(recorder):
            patches.enter_context(patched(owner, name, wrap))
        yield


@contextlib.contextmanager
def patched(owner: Any, name: str, wrap: Callable[[Any], Any]) -> Iterator[None]:
    """While this is on, `owner.name` is `wrap` of what it was."""
    own = vars(owner).get(name)
    original = getattr(owner, name)
    setattr(owner, name, wrap(original))
    try:
        yield
    finally:
        if own is None:
            delattr(owner, name)
        else:
            setattr(owner, name, own)


def without_modes(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, its operations seen by no mode: it computes about tensors, not with them."""

    def unseen(*args: Any, **kwargs: Any) -> Any:
        with _disable_current_modes():
            return function(*args, **kwargs)

    return unseen


def _patches(recorder: Recorder) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    from torch._C._distributed_c10d import Reducer
    from torch.distributed.fsdp._fully_shard import _fsdp_param, _fsdp_param_group  # slow to load
    from torch.distributed.tensor import placement_types
    from torch.distributed.tensor._sharding_prop import ShardingPropagator  # slow to load

    # DTensor asks for an operation's global result on tensors of the global size, which no rank ever has.
    yield ShardingPropagator, "_propagate_tensor_meta_non_cached", without_modes
    group = _fsdp_param_group.FSDPParamGroup
    for name in ("unshard", "wait_for_unshard", "post_backward"):
        yield group, name, _placed(recorder)
    yield _fsdp_param.FSDPParam, "init_unsharded_param", _naming(recorder)
    yield _fsdp_param.FSDPParam, "reset_sharded_param", _kept
    yield Reducer, "_rebuild_buckets", _buckets(recorder)
    if recorder.target.name == "cuda":
        yield from streams.patches(recorder.storages, _fsdp_param_group.FSDPCommContext)
        yield from offloading.patches()
        yield placement_types, "shard_dim_alltoall", _as_all_to_all


def _placed(recorder: Recorder) -> Callable[[Any], Any]:
    """What a group of parameters does belongs to its module: FSDP prefetches it while another one runs."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def placed(group: Any, *args: Any, **kwargs: Any) -> Any:
            with recorder.placed(group._module_fqn or ""):  # noqa: SLF001  # FSDP has no public door to it
                return method(group, *args, **kwargs)

        return placed

    return wrap


def _buckets(recorder: Recorder) -> Callable[[Any], Any]:
    """DDP makes its buckets anew at the beginning of a forward pass: they are no activations."""

    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def rebuilt(reducer: Any) -> Any:
            before = len(recorder.storages.entries)
            result = method(reducer)
            for entry in recorder.storages.entries[before:]:
                entry.part = "communication"
            return result

        return rebuilt

    return wrap


def _as_all_to_all(_function: Callable[..., Any]) -> Callable[..., Any]:
    """DTensor moves a shard from one dimension to another by one all-to-all; on the CPU it gathers everything."""

    def moved(tensor: torch.Tensor, gather_dim: int, shard_dim: int, mesh: Any, mesh_dim: int) -> torch.Tensor:
        group = mesh.get_group(mesh_dim).group_name
        result: torch.Tensor = torch.ops._dtensor.shard_dim_alltoall(tensor, gather_dim, shard_dim, group)  # noqa: SLF001  # DTensor's own operation
        return result

    return moved


def _kept(method: Callable[..., Any]) -> Callable[..., Any]:
    """FSDP pads a parameter again where its address is another one than before: fake tensors have none."""

    def reset(parameter: Any) -> None:
        place, sharded = parameter._module_info, parameter.sharded_param  # noqa: SLF001  # FSDP has no public door to it
        data, part = parameter._sharded_param_data, sharded._local_tensor  # noqa: SLF001  # as above
        same = getattr(place.module, place.param_name) is sharded and (
            data.untyped_storage()._cdata == part.untyped_storage()._cdata  # noqa: SLF001  # the storage's address
        )
        if same and not parameter.pin_memory:
            parameter._sharding_spec = sharded._spec  # noqa: SLF001  # as above
        else:
            method(parameter)

    return reset


def _naming(recorder: Recorder) -> Callable[[Any], Any]:
    def wrap(method: Callable[..., Any]) -> Callable[..., Any]:
        def named(parameter: Any, *args: Any, **kwargs: Any) -> Any:
            result = method(parameter, *args, **kwargs)
            recorder.naming.gathered(parameter._unsharded_param, parameter._param_fqn)  # noqa: SLF001  # as above
            return result

        return named

    return wrap
