"""DDP's reducer over fake tensors: torch's own runs, and makes buckets, views and copies as it would.

Only what looks at values is put aside: that all ranks have the same parameters, and the order of its buckets, which the
first rank tells the others once, in the second step (`sync_bucket_indices` in torch/csrc/distributed/c10d/reducer.cpp).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves

from torchledger.tracer.distributed.collectives import NAMESPACES, run_nowhere

_EMPTY = torch.ops.aten.empty.memory_format


class _Numbers(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's class has no types
    """Whole numbers are real tensors: the reducer reads back what it has written. Buckets are not of whole numbers."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is _EMPTY and kwargs.get("dtype") is torch.int32:
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
    from torch.distributed import Reducer
    from torch.nn.parallel import distributed

    yield distributed, "_verify_param_shape_across_processes", lambda _: _nothing
    yield Reducer, "_rebuild_buckets", _with_numbers


def _with_numbers(method: Callable[..., Any]) -> Callable[..., Any]:
    def rebuilt(reducer: Any) -> Any:
        with _Numbers():
            return method(reducer)

    return rebuilt


def _nothing(*_args: Any, **_kwargs: Any) -> None:
    return None
