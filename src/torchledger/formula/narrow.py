"""Linear maps whose operands are cast to FP8 or FP4: the casts, the products, and which of both copies is kept."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger import ops
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES, Value
from torchledger.ledger import Amount
from torchledger.ops import Piece


def narrow_linear(tape: Tape, path: str, x: Value, outputs: Amount, *, bias: bool) -> Value:
    """Map y = x Wᵀ + b with x, W and dy cast to the narrow format (FP8 formats, arXiv:2209.05433), results in theirs.

    TransformerEngine keeps the cast x and W for the backward pass; torchao keeps the wide x and casts it and W again.
    """
    narrow, inputs, tokens, wide = tape.formats.narrow, x.shape[-1], _rows(x), tape.formats.value
    x = tape.cast(path, f"{path}: input", x, wide)
    weight = tape.given(f"{path}: weight", (outputs, inputs), wide, requires_grad=tape.trains)
    small_x = _quantized(tape, path, "input", x)
    small_weight = _quantized(tape, path, "weight", weight)
    y = tape.make(f"{path}: output", (*x.shape[:-1], outputs), wide)
    forward: Sequence[Piece] = _product(
        ops.linear(tokens, inputs, outputs, bias=bias), tokens * inputs + inputs * outputs, y.num_elements, tape
    )
    backward = [*_cast(tokens * outputs, tape)]
    if not tape.kernels.keeps_narrow:
        backward += [*_cast(tokens * inputs, tape), *_cast(inputs * outputs, tape)]
    if x.requires_grad:
        pieces = ops.linear_input_gradient(tokens, inputs, outputs)
        backward += _product(pieces, tokens * outputs + inputs * outputs, tokens * inputs, tape)
    if tape.trains:
        pieces = ops.linear_weight_gradient(tokens, inputs, outputs)
        backward += _product(pieces, tokens * (inputs + outputs), inputs * outputs, tape)
        if bias:
            backward += ops.bias_gradient(tokens, outputs, element_bytes=x.element_bytes)
    kept_x, kept_weight = (small_x, small_weight) if tape.kernels.keeps_narrow else (x, weight)
    return tape.op(
        path,
        "matmul",
        forward,
        y,
        reads=(x, weight),
        backward=backward,
        keeps=((kept_x,) if tape.trains else ()) + ((kept_weight,) if x.requires_grad else ()),
        trains=tape.trains,
        number_format=narrow,
        holds=(small_x, small_weight),
    )


def _quantized(tape: Tape, path: str, name: str, x: Value) -> Value:
    small = tape.make(f"{path}: {name} in {tape.formats.narrow}", x.shape, tape.formats.narrow, requires_grad=False)
    tape.op(path, "", _cast(x.num_elements, tape), small, reads=(), holds=(x,))
    return small


def _cast(elements: Amount, tape: Tape) -> tuple[Piece, ...]:
    """Wide in, narrow out. A first pass for the largest magnitude is not in it: scales are delayed, or of blocks."""
    wide, narrow = ELEMENT_BYTES[tape.formats.value], ELEMENT_BYTES[tape.formats.narrow]
    return ops.copy(elements, element_bytes=wide, output_element_bytes=narrow, op="cast")


def _product(pieces: Sequence[Piece], read: Amount, written: Amount, tape: Tape) -> tuple[Piece, ...]:
    wide, narrow = ELEMENT_BYTES[tape.formats.value], ELEMENT_BYTES[tape.formats.narrow]
    return ops.moved(pieces, bytes_read=narrow * read, bytes_written=wide * written)


def _rows(x: Value) -> Amount:
    rows: Amount = 1
    for size in x.shape[:-1]:
        rows = rows * size
    return rows
