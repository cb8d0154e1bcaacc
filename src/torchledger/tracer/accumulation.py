"""Gradients that autograd's engine adds up: in place where it holds the last reference to the sum so far.

The engine gathers the gradients of a tensor that was used more than once in a buffer (`accumulate` in
torch/csrc/autograd/input_buffer.cpp). It adds in place into what it holds alone, but never while a dispatch mode runs,
which it takes for a tensor subclass. So what runs without us in place would run with us out of place, and take a tensor
more at the peak.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false

#: Backward formulas that add two tensors themselves (FunctionsManual.cpp), so that an addition in them is their own.
_ADDING = frozenset(
    {"VarMeanBackward0", "VarMeanBackward1", "StdMeanBackward0", "StdMeanBackward1", "CumprodBackward0"}
)
#: Where Python enters the engine: what the engine does itself is called from there, and nothing else is.
ENGINE = "_engine_run_backward"
#: References to a tensor that only the engine's buffer holds: that one, and those of the call that we are in.
_ALONE, _STORAGE_ALONE = 4, 2


def accumulates_in_place(node: Any, args: tuple[Any, ...], caller: str) -> bool:
    """Whether an addition in the backward pass is the engine's, and would be in place without a dispatch mode.

    Args:
        node: the node that runs, or has just run.
        args: arguments of `aten.add.Tensor`: the sum so far and what comes to it.
        caller: name of the Python function that asked for it.
    """
    if torch.is_grad_enabled() or torch._C._current_graph_task_id() == -1 or len(args) != 2:  # noqa: SLF001  # whether autograd's engine runs; no public door
        return False
    total, summand = args
    if not isinstance(summand, torch.Tensor) or total.shape != summand.shape or total.dtype != summand.dtype:
        return False
    if node is not None and node.name() in _ADDING:
        return False
    if caller != ENGINE:
        return False
    if total.layout is not torch.strided or summand.layout is not torch.strided:
        return False
    storage = total.untyped_storage()._cdata  # noqa: SLF001  # the storage's address
    if total._use_count() != _ALONE or torch._C._storage_Use_Count(storage) != _STORAGE_ALONE:  # noqa: SLF001  # what the engine itself asks
        return False
    return bool(total.is_contiguous() or is_non_overlapping_and_dense_or_false(total))
