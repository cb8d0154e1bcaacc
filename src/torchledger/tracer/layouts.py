"""Tensors of every layout as the plain tensors that hold their memory."""

from __future__ import annotations

from typing import Any

import torch

_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


def held(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The tensors whose storages hold a tensor's memory: itself, or a sparse one's indices and values.

    A layout that shows none (oneDNN's own) has none here.
    """
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
