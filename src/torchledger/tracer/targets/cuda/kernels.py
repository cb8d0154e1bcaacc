"""Operations that CUDA runs as one kernel, and kernels of CUDA that keep something else for the backward pass.

| operation | on the CPU | on CUDA |
|---|---|---|
| dropout | noise in the input's format, saved | one kernel, a boolean mask saved (aten/.../Dropout.cpp) |
| `softmax`, `log_softmax` of FP16 to FP32 | a cast, then the kernel | one kernel (aten/.../SoftMax.cpp) |
| RMSNorm | pointwise operations, all of them saved | one kernel; input and 1/RMS in FP32 (aten/.../layer_norm.cpp) |
| `histc` of whole numbers | refused | counts in the operand's format (aten/.../cuda/SummaryOps.cu) |
| LayerNorm of halves | mean and 1/σ in the input's format | in FP32 (aten/.../cuda/layer_norm_kernel.cu) |
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer.targets.cuda.replacing import operation_kept_whole, operation_replaced

_NATIVE_DROPOUT: Any = torch.ops.aten.native_dropout.default
_SOFTMAX: Any = torch.ops.aten._softmax.default  # noqa: SLF001  # its name begins so
_LOG_SOFTMAX: Any = torch.ops.aten._log_softmax.default  # noqa: SLF001  # as above
_LAYER_NORM: Any = torch.ops.aten.native_layer_norm.default
_RMS_NORM: Any = torch.ops.aten._fused_rms_norm.default  # noqa: SLF001  # as above
_HISTC: Any = torch.ops.aten.histc.default


@contextlib.contextmanager
def kernels_of_cuda() -> Iterator[None]:
    """While this is on, these operations run and save what they run and save on CUDA."""
    fakes: dict[Any, Any] = fake_impls.op_implementations_dict
    shapes = {_LAYER_NORM: _layer_norm, _RMS_NORM: _rms_norm, _HISTC: _histc}
    before = {op: fakes[op] for op in shapes if op in fakes}
    with (
        operation_replaced("dropout", _dropout),
        operation_replaced("softmax.int", _softmax(_SOFTMAX)),
        operation_replaced("log_softmax.int", _softmax(_LOG_SOFTMAX)),
        operation_kept_whole("_fused_rms_norm"),
    ):
        fakes.update(shapes)
        FakeTensorMode.cache_clear()
        try:
            yield
        finally:
            for op in shapes:
                fakes.pop(op, None)
            fakes.update(before)
            FakeTensorMode.cache_clear()


def _dropout(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
    if train and 0 < p < 1 and x.numel() > 0:
        out: torch.Tensor = _NATIVE_DROPOUT(x, p, train)[0]
        return out
    # p = 1 is a product with zeros, the rest nothing at all (Dropout.cpp: _dropout_impl).
    return x * torch.zeros((), dtype=x.dtype) if train and p == 1 and x.numel() > 0 else x


def _softmax(kernel: Any) -> Callable[..., torch.Tensor]:
    def softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
        widens = x.dtype == torch.float16 and dtype == torch.float32
        out: torch.Tensor = kernel(x if widens or dtype is None else x.to(dtype), dim, widens)
        return out

    return softmax


def _layer_norm(
    mode: FakeTensorMode, _func: Any, x: torch.Tensor, normalized_shape: list[int], *_args: Any, **_kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Output; mean and 1/σ of every row in the format that sums are made in."""
    with mode:
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        return out, _of_rows(x, normalized_shape), _of_rows(x, normalized_shape)


def _rms_norm(
    mode: FakeTensorMode, _func: Any, x: torch.Tensor, normalized_shape: list[int], *_args: Any, **_kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output; 1/RMS of every row in the format that sums are made in."""
    with mode:
        return torch.empty_like(x, memory_format=torch.contiguous_format), _of_rows(x, normalized_shape)


def _of_rows(x: torch.Tensor, normalized_shape: list[int]) -> torch.Tensor:
    rows = x.dim() - len(normalized_shape)
    dtype = torch.float32 if x.dtype.itemsize < 4 else x.dtype
    return torch.empty((*x.shape[:rows], *(1 for _ in normalized_shape)), dtype=dtype)


def _histc(mode: FakeTensorMode, _func: Any, x: torch.Tensor, bins: int = 100, *_args: Any, **_kwargs: Any) -> Any:
    with mode:
        return torch.empty(bins, dtype=x.dtype)
