"""DDP's reducer over fake tensors: torch's own runs, and makes buckets, views and copies as it would.

Only what looks at values is put aside: that all ranks have the same parameters; the order of its buckets, which the
first rank tells the others once, in the second step (`sync_bucket_indices` in torch/csrc/distributed/c10d/reducer.cpp);
and which parameters were used, where it looks for that: all ranks are taken to use the same ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from torchledger.tracer.distributed.collectives import NAMESPACES, run_nowhere

_MADE = frozenset({torch.ops.aten.empty.memory_format, torch.ops.aten.zeros.default})


class _Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Whole numbers are real tensors: the reducer reads back what it has written. Buckets are not of whole numbers."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _MADE and kwargs.get("dtype") is torch.int32:
            with _disable_current_modes():
                return func(*args, **kwargs)
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        if tensors and all(type(tensor) is torch.Tensor for tensor in tensors):
            if func.namespace in NAMESPACES:
                return run_nowhere(func, args, kwargs)
            with _disable_current_modes():
                return func(*args, **kwargs)
        return func(*args, **kwargs)


def patches() -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """Functions of DDP that look at values, and what stands in for them."""
    from torch._C._distributed_c10d import Reducer
    from torch.nn.parallel import distributed

    looking: list[bool] = []  # whether a reducer looks up which parameters were used
    yield distributed, "_verify_param_shape_across_processes", lambda _: _nothing
    for name in ("_rebuild_buckets", "_set_static_graph"):
        yield Reducer, name, _with_numbers
    yield distributed.DistributedDataParallel, "_ddp_init_helper", lambda method: _looked_up(method, looking)
    yield torch.autograd, "backward", lambda function: _while_looking(function, looking)


def _looked_up(method: Callable[..., Any], looking: list[bool]) -> Callable[..., Any]:
    """DDP that looks for unused parameters marks the used ones in a tensor of whole numbers, in the backward pass."""

    def initialised(model: Any, parameters: Any, sparse: Any, names: Any, static_graph: Any) -> Any:
        if model.find_unused_parameters or static_graph:
            looking.append(True)
        return _with_numbers(method)(model, parameters, sparse, names, static_graph)

    return initialised


def _while_looking(function: Callable[..., Any], looking: list[bool]) -> Callable[..., Any]:
    def backward(*args: Any, **kwargs: Any) -> Any:
        return _with_numbers(function)(*args, **kwargs) if looking else function(*args, **kwargs)

    return backward


def _with_numbers(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        with _Numbers():  # type: ignore[no-untyped-call]  # torch's class has no types
            return function(*args, **kwargs)

    return run


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None
