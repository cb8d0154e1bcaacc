"""`explain`: where a tensor lies in its storage, who shares it, and which shapes it can be viewed as."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from torchledger.auditor.errors import AuditError
from torchledger.formats.strides import extent
from torchledger.ledger.aliasing import Aliasing, Sharer, ViewAnswer, view_answer
from torchledger.tracer import number_format


def explain(
    tensor: Tensor,
    *,
    view: Sequence[int] | None = None,
    among: nn.Module | Mapping[str, Tensor] | None = None,
    name: str = "x",
) -> Aliasing:
    """Explain where a tensor's elements lie. `print` it; a notebook shows it drawn.

    Args:
        tensor: any strided tensor, on any device (meta and fake ones too, which have no data).
        view: a shape, one -1 allowed: can the tensor be viewed as it, why not, and what works.
        among: tensors that may share its storage: a module's parameters and buffers, or tensors by name. The tensor
            that it is a view of is always looked at.
        name: what to call it.

    Raises:
        AuditError: the tensor is sparse or nested, and has no strides.
        StrideError: `view` has another number of elements.
    """
    if tensor.layout is not torch.strided or tensor.is_nested:
        raise AuditError(f"{name} is {tensor.layout}, which has no strides: explain its values() or indices()")
    shape, stride, offset = tuple(tensor.shape), tuple(tensor.stride()), int(tensor.storage_offset())
    answers: tuple[ViewAnswer, ...] = ()
    if view is not None:
        answers = (view_answer(shape, stride, tuple(view)),)
    return Aliasing(
        name,
        shape,
        stride,
        offset,
        number_format(tensor.dtype),
        tensor.dtype.itemsize,
        tensor.untyped_storage().nbytes(),
        tuple(_sharers(tensor, among)),
        answers,
    )


def _sharers(tensor: Tensor, among: nn.Module | Mapping[str, Tensor] | None) -> Iterator[Sharer]:
    storage = tensor.untyped_storage()._cdata  # noqa: SLF001  # the storage's identity, of tensors without data too
    for name, other in _candidates(tensor, among):
        if other is tensor or other.layout is not torch.strided:
            continue
        if other.untyped_storage()._cdata != storage:  # noqa: SLF001  # as above
            continue
        yield Sharer(
            name,
            tuple(other.shape),
            tuple(other.stride()),
            int(other.storage_offset()),
            number_format(other.dtype),
            _shared(tensor, other),
        )


def _candidates(tensor: Tensor, among: nn.Module | Mapping[str, Tensor] | None) -> Iterator[tuple[str, Tensor]]:
    if tensor._base is not None:  # noqa: SLF001  # torch's only way to what a view is of
        yield "what it is a view of", tensor._base  # noqa: SLF001  # as above
    if isinstance(among, nn.Module):
        yield from among.named_parameters(remove_duplicate=False)
        yield from among.named_buffers(remove_duplicate=False)
    elif among is not None:
        yield from among.items()


def _shared(one: Tensor, other: Tensor) -> int:
    """Bytes of the stretch that lies between both tensors' first and last elements."""
    (first, end), (begin, last) = _stretch(one), _stretch(other)
    return max(0, min(end, last) - max(first, begin))


def _stretch(tensor: Tensor) -> tuple[int, int]:
    size, begin = tensor.dtype.itemsize, int(tensor.storage_offset())
    return begin * size, (begin + extent(tuple(tensor.shape), tensor.stride())) * size
