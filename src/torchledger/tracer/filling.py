"""Zeros that a backward formula fills: in place, where a dispatch mode makes autograd fill a copy.

The gradients of `gather`, `max`, `sort`, `topk`, indexing, `index_select`, `masked_select`, `take`, `cummax` are zeros
with some places filled (FunctionsManual.cpp, TensorAdvancedIndexing.cpp, ReduceOps.cpp). The formulas fill them in
place, but out of place while a dispatch mode runs, which they take for a tensor subclass (`areAnyTensorSubclassLike`).
So what runs without us in place would run with us out of place, and take a tensor of the input's size more.
"""

from __future__ import annotations

from typing import Any

import torch

from torchledger.tracer.accumulation import ENGINE

_ATEN = torch.ops.aten
#: What the formulas fill with under a mode, and without.
_IN_PLACE = {
    _ATEN.scatter.src: _ATEN.scatter_.src,
    _ATEN.scatter_add.default: _ATEN.scatter_add_.default,
    _ATEN.index_put.default: _ATEN.index_put_.default,
    _ATEN.index_add.default: _ATEN.index_add_.default,
    _ATEN.masked_scatter.default: _ATEN.masked_scatter_.default,
    _ATEN.put.default: _ATEN.put_.default,
}
#: References to a storage that only the tensor to be filled has: its own and that of Python's object for it.
_ALONE = 2


def filled_in_place(func: Any, args: tuple[Any, ...], caller: str) -> Any:
    """The operation as a backward formula would run it without a dispatch mode; other operations as they are.

    Args:
        func: the operation that runs.
        args: its arguments.
        caller: name of the Python function that asked for it.
    """
    found = _IN_PLACE.get(func)
    if found is None or torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1:  # noqa: SLF001  # whether autograd's engine runs; no public door
        return func
    if caller != ENGINE:
        return func
    storage = args[0].untyped_storage()._cdata  # noqa: SLF001  # the storage's address
    return found if torch._C._storage_Use_Count(storage) == _ALONE else func  # noqa: SLF001  # no public door
