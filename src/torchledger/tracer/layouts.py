"""Tensors of every layout as the plain tensors that hold their memory."""

from __future__ import annotations

from typing import Any

import torch
from torch._C import _functorch as functorch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def held(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose storages hold its memory: itself, a sparse one's indices and values, what a wrapper wraps.

    A layout that shows none (oneDNN's own) has none here.
    """
    wrapper: Any = unwrapped(tensor)
    if is_traceable_wrapper_subclass(wrapper):  # DTensor: this rank's part
        parts = (getattr(wrapper, name) for name in wrapper.__tensor_flatten__()[0])
        return [inner for part in parts if isinstance(part, torch.Tensor) for inner in held(part)]
    tensor = wrapper
    if tensor.layout is torch.strided:
        return [tensor]
    made: tuple[torch.Tensor, ...] | None = getattr(tensor, "stored_parts", None)
    if made is not None:
        return list(made)
    if not isinstance(tensor, FakeTensor):  # a fake mode would answer for a real one with nothing
        with no_dispatch():
            return _parts(tensor)
    return _parts(tensor)


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor inside the wrappers of `torch.func` (grad, vmap, jvp), which have no memory of their own."""
    while functorch.is_functorch_wrapped_tensor(tensor):
        tensor = functorch.get_unwrapped(tensor)
    return tensor


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    if tensor.layout is torch.sparse_coo:
        return [tensor._indices(), tensor._values()]  # noqa: SLF001  # the public ones refuse an uncoalesced gradient
    names = _COMPRESSED.get(tensor.layout)
    if names is None:
        return []
    return [*(getattr(tensor, name)() for name in names), tensor.values()]


def results_of(result: Any) -> list[torch.Tensor]:
    """All tensors that an operation returned, as those that hold their memory."""
    if isinstance(result, torch.Tensor):
        return [result] if result.layout is torch.strided else held(result)
    if isinstance(result, (tuple, list)):
        return [tensor for item in result for tensor in results_of(item)]
    return []


def num_values(tensor: torch.Tensor) -> int | None:
    """Values that a sparse tensor stores, `None` where its layout does not show them or the tensor is fake.

    A fake tensor of a real one has as many as that one, where `told` was told.
    """
    if isinstance(tensor, FakeTensor):
        count: int | None = getattr(tensor, "stored_values", None)
        return count
    if tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED:
        return int(held(tensor)[-1].numel())
    return None


def made_of(fake: torch.Tensor, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A fake sparse tensor that holds the indices and values that it is made of; by itself it forgets them."""
    fake.stored_values = int(values.numel())  # type: ignore[attr-defined]  # a fake tensor takes attributes
    fake.stored_parts = (indices, values)  # type: ignore[attr-defined]  # as above
    return fake


def told(fake: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
    """A fake tensor that knows how many values the sparse tensor stores that it stands for."""
    if real.layout is not torch.strided:
        fake.stored_values = num_values(real)  # type: ignore[attr-defined]  # a fake tensor takes attributes
    return fake


def num_bytes(parts: list[torch.Tensor]) -> int:
    """Bytes of the elements of some tensors."""
    return sum(part.numel() * part.dtype.itemsize for part in parts)
