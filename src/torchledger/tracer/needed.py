"""Which gradients a backward kernel that makes all of them was asked for: autograd's graph knows."""

from __future__ import annotations

from typing import Any

import torch

_A = torch.ops.aten

#: Backward kernels without an output mask -> beginning of their node's name, and how many inputs the node has at least.
_ALL_AT_ONCE: dict[Any, tuple[str, int]] = {
    _A.mkldnn_rnn_layer_backward.default: ("MkldnnRnnLayerBackward", 6),
    _A._scaled_dot_product_flash_attention_for_cpu_backward.default: ("ScaledDotProductFlashAttention", 3),  # noqa: SLF001  # torch's own name
    _A._scaled_dot_product_flash_attention_backward.default: ("ScaledDotProductFlashAttention", 3),  # noqa: SLF001  # as above
    _A._scaled_dot_product_efficient_attention_backward.default: ("ScaledDotProductEfficientAttention", 3),  # noqa: SLF001  # as above
    _A._scaled_dot_product_cudnn_attention_backward.default: ("ScaledDotProductCudnnAttention", 3),  # noqa: SLF001  # as above
    _A._scaled_dot_product_fused_attention_overrideable_backward.default: ("ScaledDotProductFusedAttention", 3),  # noqa: SLF001  # as above
    _A._flash_attention_backward.default: ("FlashAttentionBackward", 3),  # noqa: SLF001  # as above
    _A._efficient_attention_backward.default: ("EfficientAttentionBackward", 3),  # noqa: SLF001  # as above
}


def needed_gradients(func: Any, node: Any) -> tuple[bool, ...] | None:
    """Which inputs of a running backward node need a gradient, where its kernel makes all; `None` for all others.

    Args:
        func: the operation that is about to run.
        node: autograd's node that runs it.
    """
    known = _ALL_AT_ONCE.get(func)
    if known is None or node is None:
        return None
    name, count = known
    following = node.next_functions
    if not node.name().lstrip("_").startswith(name) or len(following) < count:
        return None  # a user's own autograd function calls the kernel
    return tuple(source is not None for source, _ in following)
