"""Which kernel scaled dot-product attention runs on CUDA: the checks of PyTorch 2.13, in its order.

Sources: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (`select_sdp_backend`, `can_use_flash_attention`,
`can_use_mem_efficient_attention`, `can_use_cudnn_attention`) and sdp_utils_cpp.h. A check answers with the reason why a
kernel cannot run, "" where it can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

import torch

AttentionKernel: TypeAlias = Literal["flash", "efficient", "cudnn", "math"]
KERNELS: tuple[AttentionKernel, ...] = get_args(AttentionKernel)

_HALVES = (torch.float16, torch.bfloat16)


class AttentionRefused(ValueError):
    """No kernel that is allowed can run this attention."""


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What the choice depends on.

    Attributes:
        query, key, value: the operands, usually [batch, heads, tokens, head size].
        mask: additive or boolean mask, or none.
        dropout: probability.
        is_causal: whether the upper triangle is masked.
        enable_gqa: whether key and value heads may be fewer than query heads.
        capability: compute capability of the chip.
        trains: whether a gradient of one of the operands will be wanted.
    """

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    mask: torch.Tensor | None
    dropout: float
    is_causal: bool
    enable_gqa: bool
    capability: tuple[int, int]
    trains: bool

    @property
    def operands(self) -> tuple[torch.Tensor, ...]:
        """Query, key and value."""
        return self.query, self.key, self.value


def default_order(capability: tuple[int, int]) -> tuple[AttentionKernel, ...]:
    """The order of trial: flash, efficient, math, cuDNN; cuDNN first on Hopper and data-centre Blackwell.

    `check_prefer_cudnn_attention` asks for cuDNN 9.15.1 or newer there, which PyTorch 2.13's wheels come with.
    """
    if capability[0] in {9, 10}:
        return ("cudnn", "flash", "efficient", "math")
    return ("flash", "efficient", "math", "cudnn")


def choose(
    call: AttentionCall, *, order: Sequence[AttentionKernel], allowed: frozenset[AttentionKernel]
) -> AttentionKernel:
    """The first kernel of the order that is allowed and can run.

    Raises:
        AttentionRefused: none can; says why each cannot.
    """
    reasons = []
    for kernel in order:
        reason = _CHECKS[kernel](call) if kernel in allowed else "it is switched off"
        if not reason:
            return kernel
        reasons.append(f"{kernel}: {reason}")
    raise AttentionRefused(f"no attention kernel of CUDA can run this ({'; '.join(reasons)})")


def _flash(call: AttentionCall) -> str:
    return (
        _four_dimensions(call)
        or ("it takes no mask" if call.mask is not None else "")
        or _head_size_of_flash(call)
        or ("it needs compute capability 8.0 to 12.1" if not (8, 0) <= call.capability <= (12, 1) else "")
        or _wide_heads_in_training(call)
        or _square_if_causal(call)
        or _low_precision(call)
        or _heads(call, supports_gqa=True)
        or _some_tokens(call)
        or _last_stride(call, singleton=True)
    )


def _efficient(call: AttentionCall) -> str:
    dtypes = (*_HALVES, torch.float32) if call.capability >= (8, 0) else (torch.float16, torch.float32)
    return (
        ("it needs compute capability 5.0 to 12.1" if not (5, 0) <= call.capability <= (12, 1) else "")
        or _four_dimensions(call)
        or _head_size_of_efficient(call)
        or _some_tokens(call)
        or _last_stride(call, singleton=False)
        or _heads(call, supports_gqa=False)
        or _one_of(call, dtypes)
    )


def _cudnn(call: AttentionCall) -> str:
    return (
        _four_dimensions(call)
        or _low_precision(call)
        or ("its dropout is a multiple of 1/16" if call.dropout * 16 % 1 else "")
        or _mask_of_cudnn(call)
        or ("it needs compute capability 8.0 to 12.1" if not (8, 0) <= call.capability <= (12, 1) else "")
        or _some_tokens(call)
        or _last_stride(call, singleton=True)
        or _heads(call, supports_gqa=True, same_value_heads=False)
        or _shapes_of_cudnn(call)
    )


def _four_dimensions(call: AttentionCall) -> str:
    return "" if all(tensor.dim() == 4 for tensor in call.operands) else "it takes tensors of 4 dimensions"


def _head_size_of_flash(call: AttentionCall) -> str:
    sizes = {tensor.shape[-1] for tensor in call.operands}
    return "" if len(sizes) == 1 and max(sizes) <= 256 else "its head sizes are equal and at most 256"


def _wide_heads_in_training(call: AttentionCall) -> str:
    """`check_requires_grad_and_head_dim_gt192_constraints_on_sm86_89_or_120`."""
    is_narrow_chip = (8, 6) <= call.capability <= (8, 9) or (12, 0) <= call.capability <= (12, 1)
    size = call.query.shape[-1]
    if call.trains and is_narrow_chip and not (size <= 192 or (call.dropout == 0 and size > 224)):
        return "its backward kernel does not fit heads of this size on this chip"
    return ""


def _square_if_causal(call: AttentionCall) -> str:
    if call.is_causal and call.query.shape[-2] != call.key.shape[-2]:
        return "its causal mask is of another corner where queries and keys differ in number"
    return ""


def _low_precision(call: AttentionCall) -> str:
    return _one_of(call, _HALVES if call.capability >= (8, 0) else (torch.float16,))


def _one_of(call: AttentionCall, dtypes: Sequence[torch.dtype]) -> str:
    found = {tensor.dtype for tensor in call.operands}
    if len(found) == 1 and found <= set(dtypes):
        return ""
    names = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
    return f"it takes operands of one format out of {names}"


def _heads(call: AttentionCall, *, supports_gqa: bool, same_value_heads: bool = True) -> str:
    """`check_batch_size_and_num_heads_dense` and `check_grouped_query_attention`."""
    if len({tensor.shape[0] for tensor in call.operands}) > 1:
        return "its operands have one batch size"
    queries, keys, values = (tensor.shape[-3] for tensor in call.operands)
    if call.enable_gqa and supports_gqa:
        if same_value_heads and keys != values:
            return "keys and values have one number of heads"
        if queries % keys or (not same_value_heads and queries % values):
            return "the number of key heads divides that of query heads"
        return ""
    return "" if queries == keys == values else "its operands have one number of heads"


def _some_tokens(call: AttentionCall) -> str:
    return "" if call.query.shape[-2] and call.key.shape[-2] else "there are no tokens"


def _last_stride(call: AttentionCall, *, singleton: bool) -> str:
    """`check_last_dim_stride_equals_1_dense`."""
    is_dense = all(tensor.stride(-1) == 1 for tensor in call.operands) or (singleton and call.query.shape[-1] == 1)
    mask_is_dense = call.mask is None or call.mask.stride(-1) == 1
    return "" if is_dense and mask_is_dense else "the last dimension has stride 1"


def _head_size_of_efficient(call: AttentionCall) -> str:
    """`check_head_dim_size_mem_efficient` with `minimum_gemm_alignment`."""
    is_half = call.query.dtype in _HALVES
    alignment = 4 if call.capability >= (8, 0) else 1
    if call.capability >= (8, 0) or (call.capability >= (7, 0) and is_half):
        alignment = max(alignment, 128 // (16 if is_half else 32))
    query, key, value = (tensor.shape[-1] for tensor in call.operands)
    if query == key and query > 0 and value > 0 and query % alignment == 0 and value % alignment == 0:
        return ""
    return f"its head sizes are multiples of {alignment}"


def _mask_of_cudnn(call: AttentionCall) -> str:
    """`check_attn_mask_shape`."""
    mask = call.mask
    if mask is None:
        return ""
    if mask.requires_grad:
        return "it makes no gradient of a mask"
    batch, heads, queries, _ = call.query.shape
    wanted = (batch, heads, queries, call.key.shape[2])[4 - mask.dim() :] if mask.dim() in {2, 4} else ()
    fits = bool(wanted) and all(size in {1, full} for size, full in zip(mask.shape, wanted, strict=True))
    return "" if fits else "a mask has 2 or 4 dimensions of the scores' sizes or 1"


def _shapes_of_cudnn(call: AttentionCall) -> str:
    """`check_cudnn_tensor_shapes` for cuDNN 9.15."""
    query, value = call.query.shape[3], call.value.shape[3]
    is_wide = call.capability == (9, 0) or call.capability[0] == 10
    limit = 192 if is_wide and (query, value) == (192, 128) else 128
    if query > limit or value > limit or query % 8 or value % 8:
        return f"its head sizes are multiples of 8 up to {limit}"
    if call.key.shape[2] == 1 or (call.dropout and call.query.shape[2] == 1):
        return "it takes more than one token"
    return ""


_CHECKS: dict[AttentionKernel, Callable[[AttentionCall], str]] = {
    "flash": _flash,
    "efficient": _efficient,
    "cudnn": _cudnn,
    "math": lambda _call: "",
}
