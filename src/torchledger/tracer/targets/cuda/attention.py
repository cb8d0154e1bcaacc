"""`scaled_dot_product_attention` as CUDA runs it: the kernel that it would choose, on operands padded as it pads them.

The kernel stands in the dispatcher in place of the composite one of aten/src/ATen/native/transformers/attention.cpp, so
that it sees every call, whoever makes it: Python, `nn.MultiheadAttention`, another composite in C++. A mode over Python
functions would miss the last, and those that an outer function call hides.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchledger.tracer.targets.cuda.attention_choice import (
    KERNELS,
    AttentionCall,
    AttentionKernel,
    choose,
    default_order,
)
from torchledger.tracer.targets.cuda.replacing import operation_replaced

#: The operations of the kernels.
_FLASH: Any = torch.ops.aten._scaled_dot_product_flash_attention.default  # noqa: SLF001  # their names begin so
_EFFICIENT: Any = torch.ops.aten._scaled_dot_product_efficient_attention.default  # noqa: SLF001  # as above
_CUDNN: Any = torch.ops.aten._scaled_dot_product_cudnn_attention.default  # noqa: SLF001  # as above
_MATH: Any = torch.ops.aten._scaled_dot_product_attention_math.default  # noqa: SLF001  # as above
#: Whether `sdpa_kernel(...)` allows a kernel.
_ALLOWED: dict[AttentionKernel, Any] = {
    "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled,
    "math": torch.backends.cuda.math_sdp_enabled,
}
#: `at::SDPBackend` by number.
_BACKENDS: dict[int, AttentionKernel] = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
_UNSET_ORDER = ("flash", "efficient", "math", "cudnn")


@contextlib.contextmanager
def attention_of_cuda(capability: tuple[int, int], kernel: AttentionKernel | None = None) -> Iterator[None]:
    """While this is on, attention runs the kernel that CUDA would choose, and saves what that kernel saves.

    Args:
        capability: compute capability of the chip.
        kernel: the kernel to run whatever CUDA would choose; `None` lets it choose.
    """

    def attend(  # noqa: PLR0917  # the arguments of aten::scaled_dot_product_attention
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        mask: torch.Tensor | None = None,
        dropout: float = 0.0,
        is_causal: bool = False,
        *,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        trains = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in (query, key, value))
        call = AttentionCall(query, key, value, mask, dropout, is_causal, enable_gqa, capability, trains)
        return _run(call, _chosen(call, kernel), scale)

    with operation_replaced("scaled_dot_product_attention", attend):
        yield


def _chosen(call: AttentionCall, kernel: AttentionKernel | None) -> AttentionKernel:
    if kernel is not None:
        return choose(call, order=(kernel,), allowed=frozenset(KERNELS))
    numbers = torch._C._get_sdp_priority_order()  # noqa: SLF001  # what sdpa_kernel(set_priority=True) sets
    order = tuple(_BACKENDS[number] for number in numbers if number in _BACKENDS)
    if order == _UNSET_ORDER:
        order = default_order(call.capability)
    allowed: frozenset[AttentionKernel] = frozenset(name for name in KERNELS if _ALLOWED[name]())
    return choose(call, order=order, allowed=allowed)


def _run(call: AttentionCall, kernel: AttentionKernel, scale: float | None) -> torch.Tensor:
    query, key, value, dropout, is_causal = call.query, call.key, call.value, call.dropout, call.is_causal
    if kernel == "flash":
        # The kernel's heads are multiples of 8; the scale is that of the head before it was padded.
        size = query.shape[-1]
        padded = (_padded(tensor) for tensor in (query, key, value))
        scale = size**-0.5 if scale is None else scale
        out = _FLASH(*padded, dropout, is_causal, False, scale=scale)[0]
        return out if out.shape[-1] == size else out[..., :size]  # type: ignore[no-any-return]  # as `query`
    mask = _additive(call.mask, query.dtype, lowest=-65504.0 if kernel == "cudnn" else float("-inf"))
    if kernel == "efficient":
        mask = None if mask is None else _aligned(mask).expand(*query.shape[:3], key.shape[2])
        out = _EFFICIENT(query, key, value, mask, call.trains, dropout, is_causal, scale=scale)[0]
    elif kernel == "cudnn":
        out = _CUDNN(query, key, value, mask, call.trains, dropout, is_causal, False, scale=scale)[0]
    else:
        out = _MATH(query, key, value, mask, dropout, is_causal, None, scale=scale, enable_gqa=call.enable_gqa)[0]
    return out  # type: ignore[no-any-return]  # as `query`


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """`pad_last_dim<8>`."""
    missing = -tensor.shape[-1] % 8
    return torch.constant_pad_nd(tensor, (0, missing)) if missing else tensor


def _additive(mask: torch.Tensor | None, dtype: torch.dtype, *, lowest: float) -> torch.Tensor | None:
    """`convert_boolean_attn_mask`: a boolean mask as one that is added, in the operands' format."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(lowest, dtype=dtype, device=mask.device))


def _aligned(mask: torch.Tensor) -> torch.Tensor:
    """`preprocess_mask`: rows that start at multiples of 8 elements, where they do not yet."""
    if mask.stride(-1) == 1 and all(stride % 8 == 0 for stride in mask.stride()[:-1]):
        return mask
    size = mask.shape[-1]
    return torch.constant_pad_nd(mask, (0, 8 - size % 8))[..., :size]
