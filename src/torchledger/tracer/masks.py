"""Masks as indices: `x[mask]` finds the places where the mask is true, and takes those.

The kernel finds them itself (`nonzero`), which no fake tensor can; where routing or known values say how many there
are, the two steps are recorded one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch

from torchledger.tracer.routes import route_of
from torchledger.tracer.values import holds

_aten: Any = torch.ops.aten
#: Operations that take indices as their second argument.
INDEXED = frozenset({_aten.index.Tensor, _aten.index_put_.default, _aten.index_put.default})
_TRUTHS = frozenset({torch.bool, torch.uint8})


def taken(
    recorded: Callable[[], contextlib.AbstractContextManager[None]],
    func: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The result of an operation of `INDEXED` under masks whose places are known; `NotImplemented` under none.

    Args:
        recorded: operations inside are recorded.
        func: the operation.
        args: its arguments.
        kwargs: more of them.
    """
    indices = args[1]
    if not any(_has_places(index) for index in indices):
        return NotImplemented
    if func is not _aten.index.Tensor and args[2].numel() == 1 and len(indices) == 1:
        return NotImplemented  # filled where the mask is true, which asks for no places
    with recorded():
        places: list[torch.Tensor | None] = []
        for index in indices:
            if _has_places(index):
                places.extend(index.nonzero().unbind(1))
            else:
                places.append(index)
        return func(args[0], places, *args[2:], **kwargs)


def _has_places(index: Any) -> bool:
    if not isinstance(index, torch.Tensor) or index.dtype not in _TRUTHS:
        return False
    if holds(index):
        return True
    route = route_of(index)
    return route is not None and route.says == "mask"
