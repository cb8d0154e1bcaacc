"""Results of the CPU's kernels where torch's shape rules, which fake tensors follow, say something else.

| operation | the rule | the kernel |
|---|---|---|
| norms of halves, weights in FP32 | statistics in halves | in FP32 (aten/.../cpu/mixed_data_type.h) |
| GroupNorm's backward of them | input gradient in FP32 | in halves (aten/.../group_norm.cpp) |
| oneDNN's recurrent layer, backward | one gradient for both biases | two (aten/.../mkldnn/RNN.cpp) |
| oneDNN's recurrent layer, forward | keeps nothing | a workspace of the library's size: said, not counted |
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

_ATEN = torch.ops.aten
_RNN = _ATEN.mkldnn_rnn_layer.default
_RNN_BACKWARD = _ATEN.mkldnn_rnn_layer_backward.default
_GROUP_NORM_BACKWARD = _ATEN.native_group_norm_backward.default
#: Norms, with the place of their weight among the arguments.
_WEIGHT_AT = {
    _ATEN.native_layer_norm.default: 2,
    _ATEN.native_group_norm.default: 1,
    _ATEN.native_batch_norm.default: 1,
}
#: Operations that `as_kernels_do` knows better.
MENDED = frozenset({*_WEIGHT_AT, _GROUP_NORM_BACKWARD, _RNN, _RNN_BACKWARD})
_HALVES = frozenset({torch.bfloat16, torch.float16})
WORKSPACE = "oneDNN's recurrent layers keep a workspace for the backward pass: its size is the library's, not counted"


def as_kernels_do(func: Any, args: tuple[Any, ...], result: Any, assume: Callable[[str], None]) -> Any:
    """The results with the formats that the kernel gives them.

    Args:
        func: one of `MENDED`.
        args: its arguments, fake.
        result: what torch's shape rule says.
        assume: is told of what nobody can know.
    """
    if func is _RNN:
        if args[-1]:  # in training
            assume(WORKSPACE)
        return result
    first, *rest = result
    if func is _RNN_BACKWARD:
        second_bias = torch.empty_like(rest[3]) if rest[3] is rest[2] else rest[3]
        return (first, *rest[:3], second_bias, *rest[4:])
    if func is _GROUP_NORM_BACKWARD:
        return (first.to(args[1].dtype) if first is not None else None, *rest)
    weight = args[_WEIGHT_AT[func]]
    if args[0].dtype not in _HALVES or weight is None or weight.dtype is not torch.float32:
        return result
    return (
        first,
        *(each if each.dtype is torch.float32 else torch.empty_like(each, dtype=torch.float32) for each in rest),
    )
