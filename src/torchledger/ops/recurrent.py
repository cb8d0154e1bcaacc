"""Recurrent layers as one kernel: Elman, LSTM (Hochreiter and Schmidhuber, 1997) and GRU (arXiv:1406.1078).

A layer of G gates runs two products a step: the step's input with W_ih [G·hidden, inputs], which all steps share and
which is therefore one product, and the last output with W_hh [G·hidden, outputs], step by step. An LSTM with a
projection (arXiv:1402.1128) has a third one, W_hr [outputs, hidden].
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from torchledger.ledger import Amount, GradientOf, Shape, Work
from torchledger.ops.matmul import matmul
from torchledger.ops.piece import Piece, moved
from torchledger.ops.registry import rule

Cell: TypeAlias = Literal["rnn_tanh", "rnn_relu", "lstm", "gru"]

#: Gates of a cell.
gates: dict[str, int] = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}

#: FLOPs and transcendentals of one hidden unit's step, forward and backward; sums of the two products included,
#: biases apart. tanh 1, sigmoid 1 FLOP and 2 transcendentals; backward tanh 3 FLOPs, sigmoid 3 (as in `per_element`).
_CELL: dict[str, tuple[int, int, int, int]] = {
    "rnn_tanh": (1, 1, 3, 0),  # tanh(a + b)
    "rnn_relu": (2, 0, 1, 0),  # max(a + b, 0)
    # 4 sums, 3 sigmoids, 2 tanh, c = f·c + i·g, h = o·tanh(c); backward: do, dc += dh·o·(1 - t²), di, df, dg, dc·f.
    "lstm": (4 + 3 + 3 + 1, 3 * 2 + 2, 1 + 1 + 3 + 1 + 4 + 3 * 3 + 3, 0),
    # 3 sums less the one inside tanh, r·b added, 2 sigmoids, tanh, h = (h - n)·z + n; backward the product rule.
    "gru": (2 + 2 + 2 + 3, 2 * 2 + 1, 2 + 1 + 1 + 1 + 1 + 2 * 3 + 3, 0),
}


@rule
def recurrent_layer(
    steps: Amount,
    batch: Amount,
    inputs: Amount,
    hidden: Amount,
    *,
    cell: Cell = "lstm",
    projection: Amount = 0,
    bias: bool = True,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """One layer in one direction: 2·steps·batch·G·hidden·(inputs + hidden), and the cell element by element.

    Args:
        steps: time steps.
        batch: sequences.
        inputs: width of a step's input.
        hidden: width of the state.
        cell: which cell.
        projection: width of the projected output, 0 without one.
        bias: whether there are two biases, as in torch.
        element_bytes: bytes of an element.

    >>> [piece.work.flops_full for piece in recurrent_layer(16, 2, 32, 64)][:2]  # 2·16·2·256·32, 2·16·2·256·64
    [524288, 1048576]
    """
    outputs = projection or hidden
    rows = gates[cell] * hidden
    pieces = (
        *matmul(1, steps * batch, rows, inputs, element_bytes=element_bytes, op="recurrent_input"),
        *matmul(steps, batch, rows, outputs, element_bytes=element_bytes, op="recurrent_hidden"),
    )
    if projection:
        pieces += matmul(steps, batch, projection, hidden, element_bytes=element_bytes, op="recurrent_projection")
    flops, transcendentals, _, _ = _CELL[cell]
    units = steps * batch * hidden
    adds = 2 * gates[cell] if bias else 0
    work = Work.of_flops((flops + adds) * units, transcendentals=transcendentals * units)
    return (*pieces, Piece("recurrent_cell", "pointwise", work, (("elements", units),)))


@rule
def recurrent_layer_backward(
    steps: Amount,
    batch: Amount,
    inputs: Amount,
    hidden: Amount,
    *,
    cell: Cell = "lstm",
    projection: Amount = 0,
    bias: bool = True,
    input_gradient: bool = True,
    state_gradient: bool = True,
    weight_gradient: bool = True,
    runs_all: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """All gradients of one layer. The state's product runs once less where nobody asks for the first state's gradient.

    Args:
        steps: time steps.
        batch: sequences.
        inputs: width of a step's input.
        hidden: width of the state.
        cell: which cell.
        projection: width of the projected output, 0 without one.
        bias: whether there are biases.
        input_gradient: whether the input's gradient is needed.
        state_gradient: whether the first state's is.
        weight_gradient: whether the weights' are.
        runs_all: whether the kernel makes them all the same: executed FLOPs count them then, model FLOPs never.
        element_bytes: bytes of an element.

    >>> pieces = recurrent_layer_backward(16, 2, 32, 64, input_gradient=False, state_gradient=False)
    >>> sum(piece.work.flops_full for piece in pieces if piece.kind == "matmul")
    ... # weights 2·16·2·256·(32 + 64), state 2·15·2·256·64
    2555904
    """
    outputs = projection or hidden
    rows = gates[cell] * hidden
    tokens = steps * batch
    back = steps if state_gradient else steps - 1
    to_input, to_hidden, state = tokens * rows * inputs, tokens * rows * outputs, back * batch * rows * outputs
    # Name, whose gradient it is, multiply-adds of the model (none where nobody needs it) and of the kernel.
    parts: list[tuple[str, GradientOf, Amount, Amount]] = [
        ("recurrent_input_gradient", "input", int(input_gradient) * to_input, to_input),
        ("recurrent_state_gradient", "input", state, to_hidden),
        ("recurrent_input_weight_gradient", "weight", int(weight_gradient) * to_input, to_input),
        ("recurrent_hidden_weight_gradient", "weight", int(weight_gradient) * to_hidden, to_hidden),
    ]
    if projection:
        both = tokens * hidden * outputs
        parts += [
            ("recurrent_projection_gradient", "input", both, both),
            ("recurrent_projection_weight_gradient", "weight", int(weight_gradient) * both, both),
        ]
    shape = (("steps", steps), ("batch", batch), ("rows", rows), ("inputs", inputs), ("hidden", hidden))
    pieces = _products(parts, shape, runs_all=runs_all)
    pieces += _cell_backward(tokens, rows, hidden, cell=cell, bias=bias and weight_gradient)
    read = element_bytes * (tokens * (inputs + rows + 2 * hidden) + rows * (inputs + outputs))
    written = element_bytes * (tokens * inputs + rows * (inputs + outputs))
    return moved(pieces, bytes_read=read, bytes_written=written)


def _products(parts: list[tuple[str, GradientOf, Amount, Amount]], shape: Shape, *, runs_all: bool) -> list[Piece]:
    """A piece a product, of those that are needed or that run all the same."""
    return [
        Piece(op, "matmul", Work(2 * model, 2 * model, 2 * (run if runs_all else model)), shape, of)
        for op, of, model, run in parts
        if runs_all or model != 0
    ]


def _cell_backward(tokens: Amount, rows: Amount, hidden: Amount, *, cell: Cell, bias: bool) -> list[Piece]:
    """What a layer's gradient does beside its products: the cell's own, and the sums of the biases."""
    _, _, flops, transcendentals = _CELL[cell]
    units = tokens * hidden
    work = Work.of_flops(flops * units, transcendentals=transcendentals * units)
    pieces = [Piece("recurrent_cell_backward", "pointwise", work, (("elements", units),), "input")]
    if bias:
        sums = Work.of_flops((tokens - 1) * rows)
        pieces.append(Piece("recurrent_bias_gradient", "reduction", sums, (("tokens", tokens), ("n", rows)), "weight"))
    return pieces


@rule
def recurrent_cell(
    batch: Amount, hidden: Amount, *, cell: Cell = "lstm", bias: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """What follows one step's two products, as one kernel: gates, state and output.

    >>> recurrent_cell(2, 64, bias=False)[0].work.flops_full  # 11·2·64
    1408
    """
    flops, transcendentals, _, _ = _CELL[cell]
    units = batch * hidden
    adds = 2 * gates[cell] if bias else 0
    work = Work.of_flops(
        (flops + adds) * units,
        transcendentals=transcendentals * units,
        bytes_read=element_bytes * units * (2 * gates[cell] + 1),
        bytes_written=element_bytes * units * 2,
    )
    return (Piece("recurrent_cell", "pointwise", work, (("elements", units),)),)


@rule
def recurrent_cell_backward(
    batch: Amount, hidden: Amount, *, cell: Cell = "lstm", element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Its gradient.

    >>> recurrent_cell_backward(2, 64)[0].work.flops_full  # 22·2·64
    2816
    """
    _, _, flops, transcendentals = _CELL[cell]
    units = batch * hidden
    work = Work.of_flops(
        flops * units,
        transcendentals=transcendentals * units,
        bytes_read=element_bytes * units * (gates[cell] + 3),
        bytes_written=element_bytes * units * (gates[cell] + 1),
    )
    return (Piece("recurrent_cell_backward", "pointwise", work, (("elements", units),), "input"),)
