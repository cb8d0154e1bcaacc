"""Recurrent layers as CUDA runs them: one cuDNN operation for all layers, directions and steps.

aten/src/ATen/native/RNN.cpp and cudnn/RNN.cpp: `lstm`, `gru`, `rnn_tanh` and `rnn_relu` become `_cudnn_rnn`. Its
weights are one buffer (`flatten_parameters`), and so are their gradients. What cuDNN keeps for the backward pass (the
reserve) it sizes itself, so that is unknown and said to be. Packed sequences, whose lengths are data, stay as the CPU
runs them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer.targets.cuda.replacing import operation_replaced

RESERVE_IS_UNKNOWN = "what cuDNN keeps for the backward pass of a recurrent layer (its reserve) is unknown and left out"
_CUDNN_RNN: Any = torch.ops.aten._cudnn_rnn.default  # noqa: SLF001  # its name begins so
_BACKWARD: Any = torch.ops.aten._cudnn_rnn_backward.default  # noqa: SLF001  # as above
#: cudnnRNNMode_t.
_MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}


@contextlib.contextmanager
def recurrent_layers_of_cuda(assume: Callable[[str], None]) -> Iterator[None]:
    """While this is on, recurrent layers are cuDNN's.

    Args:
        assume: is told that the reserve is unknown, once a layer runs that trains.
    """
    fakes: dict[Any, Any] = fake_impls.op_implementations_dict
    shapes = {_CUDNN_RNN: _forward, _BACKWARD: _backward}
    before = {op: fakes[op] for op in shapes if op in fakes}
    with contextlib.ExitStack() as stack:
        for name in _MODES:
            stack.enter_context(operation_replaced(f"{name}.input", _layers(name, assume)))
        fakes.update(shapes)
        try:
            yield
        finally:
            for op in shapes:
                del fakes[op]
            fakes.update(before)


def _layers(name: str, assume: Callable[[str], None]) -> Callable[..., tuple[torch.Tensor, ...]]:
    def run(  # noqa: PLR0917  # the arguments of aten::lstm.input
        x: torch.Tensor,
        hidden: Any,
        weights: list[torch.Tensor],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[torch.Tensor, ...]:
        hx, cx = hidden if name == "lstm" else (hidden, None)
        width = hx.shape[2] if cx is None else cx.shape[2]
        projected = 0 if hx.shape[2] == width else hx.shape[2]
        if train:
            assume(RESERVE_IS_UNKNOWN)
        stride = (4 if has_biases else 2) + bool(projected)
        out, hy, cy, _, _ = _CUDNN_RNN(
            x, list(weights), stride, None, hx, cx, _MODES[name], width, projected, num_layers, batch_first, dropout,
            train, bidirectional, [], None,
        )  # fmt: skip
        return (out, hy, cy) if name == "lstm" else (out, hy)

    return run


def _forward(
    mode: FakeTensorMode, _func: Any, x: torch.Tensor, weights: list[torch.Tensor], *rest: Any, **_kwargs: Any
) -> tuple[torch.Tensor, ...]:
    """Output and last states; no reserve, whose size cuDNN alone knows; the weights' buffer, which they are."""
    _, _, hx, cx, _, width, projected, _, _, _, _, bidirectional, *_ = rest
    with mode:
        out = torch.empty((*x.shape[:-1], (projected or width) * (2 if bidirectional else 1)), dtype=x.dtype)
        cy = torch.empty(0, dtype=x.dtype) if cx is None else torch.empty_like(cx)
        return out, torch.empty_like(hx), cy, torch.empty(0, dtype=torch.uint8), weights[0].detach()


def _backward(
    mode: FakeTensorMode, _func: Any, x: torch.Tensor, weights: list[torch.Tensor], *rest: Any, **_kwargs: Any
) -> tuple[Any, ...]:
    """Gradients of input, states and weights; those of the weights lie in one buffer."""
    hx, cx, output_mask = rest[2], rest[3], rest[-1]
    with mode:
        flat = torch.empty(sum(weight.numel() for weight in weights) if output_mask[3] else 0, dtype=x.dtype)
        gradients, offset = [], 0
        for weight in weights if output_mask[3] else ():
            gradients.append(flat[offset : offset + weight.numel()].view(weight.shape))
            offset += weight.numel()
        states = [None if state is None else torch.empty_like(state) for state in (hx, cx)]
        return torch.empty_like(x), *states, gradients
