"""A batch of another size: shapes are all a trace needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from torchledger.tracer.errors import TraceError
from torchledger.tracer.plain_step import tensors_of


def resized(batch: Any, *, batch_size: int | None = None, sequence_length: int | None = None) -> Any:
    """The batch with other sizes, its tensors on meta; everything else in it as it is.

    Args:
        batch: a tensor, or tensors in tuples, lists and mappings.
        batch_size: size of dimension 0 of every tensor whose dimension 0 is that of the first one.
        sequence_length: size of every later dimension that equals dimension 1 of the first tensor of two or more
            dimensions (token ids [batch, tokens], a mask [batch, 1, tokens, tokens]).

    Raises:
        TraceError: there is no such dimension to resize.
    """
    tensors = tensors_of(batch)
    rows = next((tensor.shape[0] for tensor in tensors if tensor.dim()), None)
    tokens = next((tensor.shape[1] for tensor in tensors if tensor.dim() > 1), None)
    if batch_size is not None and rows is None:
        raise TraceError("the batch holds no tensor whose first dimension could be resized", remedy="Pass tensors")
    if sequence_length is not None and tokens is None:
        raise TraceError("the batch holds no tensor [batch, tokens, ...] to make longer", remedy="Pass token ids")
    return _mapped(batch, rows, tokens, batch_size, sequence_length)


def _mapped(batch: Any, rows: int | None, tokens: int | None, batch_size: int | None, length: int | None) -> Any:
    if isinstance(batch, torch.Tensor):
        shape = [
            batch_size if number == 0 and size == rows and batch_size is not None
            else length if number > 0 and size == tokens and length is not None
            else size
            for number, size in enumerate(batch.shape)
        ]  # fmt: skip
        return torch.empty(shape, dtype=batch.dtype, device="meta", requires_grad=batch.requires_grad)
    if isinstance(batch, Mapping):
        return {key: _mapped(value, rows, tokens, batch_size, length) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        items = [_mapped(item, rows, tokens, batch_size, length) for item in batch]
        return type(batch)(*items) if hasattr(batch, "_fields") else type(batch)(items)
    return batch
