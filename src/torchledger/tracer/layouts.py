"""Tensors of every layout as the plain tensors that hold their memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def held(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose storages hold a tensor's memory: itself, a sparse one's indices and values, what a wrapper wraps.

    A layout that shows none (oneDNN's own) has none here.
    """
    if is_traceable_wrapper_subclass(tensor):  # DTensor: this rank's part
        parts = (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])
        return [inner for part in parts if isinstance(part, torch.Tensor) for inner in held(part)]
    if tensor.layout is torch.strided:
        return [tensor]
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
    """Values that a sparse tensor stores, `None` where its layout does not show them."""
    if tensor.layout is torch.sparse_coo or tensor.layout in _COMPRESSED:
        return int((tensor._values() if tensor.layout is torch.sparse_coo else tensor.values()).numel())  # noqa: SLF001  # as above
    return None


def num_bytes(parts: list[torch.Tensor]) -> int:
    """Bytes of the elements of some tensors."""
    return sum(part.numel() * part.dtype.itemsize for part in parts)
