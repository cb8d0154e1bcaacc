"""Results of operations that fake tensors refuse although the device that is looked at runs them."""

from __future__ import annotations

from typing import Any

import torch

from torchledger.tracer.routing import ROUTED, Routing

_GROUPED = torch.ops.aten._grouped_mm.default  # noqa: SLF001  # torch's own name

_ALIGNED = torch.ops.aten._nested_tensor_from_mask_left_aligned.default  # noqa: SLF001  # as above

#: Operations that may need one.
STAND_INS = ROUTED | {_GROUPED, _ALIGNED}


def stand_in(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], routing: Routing) -> Any:
    """What the operation would return, `None` where fake tensors know it themselves.

    Args:
        func: one of `STAND_INS`.
        args: its arguments.
        kwargs: more of them.
        routing: what a router would have decided.
    """
    if func is _ALIGNED:
        routing.assume("torch's encoder in evaluation: padded tokens are computed too (which ones there are is data)")
        return False
    if func is not _GROUPED:
        return routing.result(func, args)
    if args[0].dtype is torch.bfloat16:
        return None
    return _grouped(*args, **kwargs)


def _grouped(
    left: torch.Tensor,
    right: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Grouped products of other formats than bf16: the CPU runs them, torch's shape rule knows bf16 alone."""
    del bias
    groups = () if left.dim() != right.dim() else (left.shape[0],) if offs is None else (offs.shape[0],)
    return torch.empty((*groups, left.shape[-2], right.shape[-1]), dtype=out_dtype or left.dtype)
