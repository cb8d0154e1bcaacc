"""Prices of recurrent layers and cells that run as one kernel: oneDNN's, cuDNN's, MIOpen's and ATen's own."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.ops.recurrent import Cell
from torchledger.tracer.pricing.seen import Seen, price_of

#: `mode` of cuDNN, MIOpen and oneDNN (aten/src/ATen/native/RNN.h, cudnnRNNMode_t).
_MODES: tuple[Cell, ...] = ("rnn_relu", "rnn_tanh", "lstm", "gru")


@price_of("mkldnn_rnn_layer")
def onednn_layer(seen: Seen) -> tuple[Piece, ...]:
    """One layer in one direction; [steps, batch, inputs]."""
    steps, batch, inputs = seen.tensor("input").shape
    return ops.recurrent_layer(
        steps, batch, inputs, seen.arguments["hidden_size"], cell=_MODES[seen.arguments["mode"]],
        bias=bool(seen.arguments["has_biases"]), element_bytes=seen.first.dtype.itemsize,
    )  # fmt: skip


@price_of("mkldnn_rnn_layer_backward")
def onednn_layer_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients. The kernel makes them all; which ones are needed the graph tells (input, 4 weights, h0, c0)."""
    steps, batch, inputs = seen.tensor("input").shape
    return ops.recurrent_layer_backward(
        steps, batch, inputs, seen.arguments["hidden_size"], cell=_MODES[seen.arguments["mode"]],
        bias=bool(seen.arguments["has_biases"]), element_bytes=seen.first.dtype.itemsize,
        input_gradient=seen.is_needed(0), weight_gradient=any(seen.is_needed(i) for i in range(1, 5)),
        state_gradient=seen.is_needed(5), runs_all=True,
    )  # fmt: skip


@price_of("_cudnn_rnn", "miopen_rnn")
def stacked_layers(seen: Seen) -> tuple[Piece, ...]:
    """All layers and directions in one kernel."""
    return tuple(
        piece
        for inputs in _layer_inputs(seen)
        for piece in ops.recurrent_layer(
            *_steps(seen), inputs, seen.arguments["hidden_size"], cell=_MODES[seen.arguments["mode"]],
            projection=seen.arguments.get("proj_size") or 0, bias=_has_bias(seen),
            element_bytes=seen.first.dtype.itemsize,
        )
    )  # fmt: skip


@price_of("_cudnn_rnn_backward", "miopen_rnn_backward")
def stacked_layers_backward(seen: Seen) -> tuple[Piece, ...]:
    """Their gradients; the kernel makes the input's, the state's and, asked for apart, the weights'."""
    of_input, of_state, _, of_weight = seen.flags("output_mask")
    per_layer = 2 if seen.arguments["bidirectional"] else 1
    pieces: list[Piece] = []
    for number, inputs in enumerate(_layer_inputs(seen)):
        pieces += ops.recurrent_layer_backward(
            *_steps(seen), inputs, seen.arguments["hidden_size"], cell=_MODES[seen.arguments["mode"]],
            projection=seen.arguments.get("proj_size") or 0, bias=_has_bias(seen),
            element_bytes=seen.first.dtype.itemsize, input_gradient=of_input or number >= per_layer,
            state_gradient=of_state, weight_gradient=of_weight, runs_all=True,
        )  # fmt: skip
    return tuple(pieces)


@price_of("_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
def fused_cell(seen: Seen) -> tuple[Piece, ...]:
    """Gates, state and output of one step; its two products are operations of their own."""
    batch, hidden = seen.results[0].shape
    bias = seen.optional("input_bias") is not None
    return ops.recurrent_cell(batch, hidden, cell=_cell(seen), bias=bias, element_bytes=seen.first.dtype.itemsize)


@price_of(
    "_thnn_fused_lstm_cell_backward", "_thnn_fused_lstm_cell_backward_impl", "_thnn_differentiable_lstm_cell_backward",
    "_thnn_fused_gru_cell_backward", "_thnn_differentiable_gru_cell_backward",
)  # fmt: skip
def fused_cell_backward(seen: Seen) -> tuple[Piece, ...]:
    """Its gradients."""
    state = seen.optional("cx") or seen.optional("grad_hy") or seen.first
    batch, hidden = state.shape
    return ops.recurrent_cell_backward(batch, hidden, cell=_cell(seen), element_bytes=state.dtype.itemsize)


def _cell(seen: Seen) -> Cell:
    return "lstm" if "lstm" in seen.op else "gru"


def _steps(seen: Seen) -> tuple[int, int]:
    """Steps and sequences; packed sequences are their tokens, one step each."""
    shape = seen.tensor("input").shape
    if len(shape) == 2:
        return shape[0], 1
    return (shape[1], shape[0]) if seen.arguments["batch_first"] else (shape[0], shape[1])


def _has_bias(seen: Seen) -> bool:
    layers = seen.arguments["num_layers"] * (2 if seen.arguments["bidirectional"] else 1)
    return bool(len(seen.tensors("weight")) >= 4 * layers)


def _layer_inputs(seen: Seen) -> list[int]:
    """Width of the input of every layer and direction."""
    directions = 2 if seen.arguments["bidirectional"] else 1
    width = (seen.arguments.get("proj_size") or 0) or seen.arguments["hidden_size"]
    first = seen.tensor("input").shape[-1]
    later = [width * directions] * (seen.arguments["num_layers"] - 1)
    return [inputs for inputs in (first, *later) for _ in range(directions)]
