"""Results of operations that fake tensors refuse although the device that is looked at runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._mode_utils import no_dispatch

from torchledger.tracer.routing import ROUTED, Routing
from torchledger.tracer.values import holds, read

_GROUPED = torch.ops.aten._grouped_mm.default  # noqa: SLF001  # torch's own name

_ALIGNED = torch.ops.aten._nested_tensor_from_mask_left_aligned.default  # noqa: SLF001  # as above

_CTC = torch.ops.aten._ctc_loss.Tensor  # noqa: SLF001  # as above

#: Operations that may need one.
STAND_INS = ROUTED | {_GROUPED, _ALIGNED, _CTC}


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
    if func is _CTC:
        return _ctc(args[0], args[1], args[3], routing.assume)
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


def _ctc(
    scores: torch.Tensor, targets: torch.Tensor, target_lengths: torch.Tensor, assume: Callable[[str], None]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Losses [batch] and log α [batch, frames, 2·targets + 1] (aten/src/ATen/native/LossCTC.cpp)."""
    batch = target_lengths.numel()
    padded = targets.dim() == 2
    longest = targets.shape[1] if padded else -(-targets.numel() // max(batch, 1))
    if holds(target_lengths):
        lengths = read(target_lengths)
        with no_dispatch():
            longest = int(lengths.max())
    else:
        taken = "as long as the padded targets" if padded else "equally long"
        assume(f"ctc_loss: every target is taken to be {taken} (their lengths are data)")
    return scores.new_empty(batch), scores.new_empty(batch, scores.shape[0], 2 * longest + 1)
