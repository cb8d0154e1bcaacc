"""Linear maps whose operands are cast to FP8 or FP4: the casts, the products, and which of both copies is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torchledger import ops
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES, Value
from torchledger.ledger import Amount
from torchledger.ops import Piece

_MULTIPLE = 16  # of both sizes of a matrix that the units for FP8 take (torch._scaled_mm; TransformerEngine)


def runs_narrow(inputs: Amount, outputs: Amount) -> bool:
    """Whether a map of these sizes can run in FP8 or narrower; of symbols that it can.

    >>> runs_narrow(64, 96), runs_narrow(64, 97)
    (True, False)
    """
    return all(not isinstance(size, int) or size % _MULTIPLE == 0 for size in (inputs, outputs))


def narrow_linear(tape: Tape, path: str, x: Value, outputs: Amount, *, bias: bool) -> Value:
    """Map y = x Wᵀ + b with x, W and dy cast to the narrow format (FP8 formats, arXiv:2209.05433), results in theirs.

    TransformerEngine keeps the cast x and W for the backward pass; torchao and the trainer keep the wide x and cast it
    and W again, by the scales that they found before.
    """
    narrow, inputs, tokens, wide = tape.formats.narrow, x.shape[-1], _rows(x), tape.formats.value
    eager = tape.kernels.casts == "eager"
    x = tape.cast(path, f"{path}: input", x, wide)
    weight = tape.given(f"{path}: weight", (outputs, inputs), wide, requires_grad=tape.trains)
    x_scale, small_x = _quantized(tape, path, "input", x)
    weight_scale, small_weight = _quantized(tape, path, "weight", weight)
    y = tape.make(f"{path}: output", (*x.shape[:-1], outputs), wide)
    forward: Sequence[Piece] = _product(
        ops.linear(tokens, inputs, outputs, bias=bias), tokens * inputs + inputs * outputs, y.num_elements, tape
    )
    backward = [*(_scale(tokens * outputs, tape) if eager else ()), *_cast(tokens * outputs, tape)]
    if not tape.kernels.keeps_narrow:
        backward += [*_cast(tokens * inputs, tape), *_cast(inputs * outputs, tape)]
    if x.requires_grad:
        pieces = ops.linear_input_gradient(tokens, inputs, outputs)
        backward += _product(pieces, tokens * outputs + inputs * outputs, tokens * inputs, tape)
    if tape.trains:
        if eager:  # dyᵀ by rows
            backward += ops.copy(tokens * outputs, element_bytes=ELEMENT_BYTES[narrow])
        pieces = ops.linear_weight_gradient(tokens, inputs, outputs)
        backward += _product(pieces, tokens * (inputs + outputs), inputs * outputs, tape)
        if bias:
            backward += ops.bias_gradient(tokens, outputs, element_bytes=x.element_bytes)
    kept_x, kept_weight = (small_x, small_weight) if tape.kernels.keeps_narrow else (x, weight)
    kept = ((kept_x, *x_scale) if tape.trains else ()) + ((kept_weight, *weight_scale) if x.requires_grad else ())
    # An autograd function of Python keeps things once it has run, so that a checkpoint's second run goes through it.
    return tape.op(
        path,
        "matmul",
        forward,
        y,
        reads=(x, weight),
        backward=backward,
        keeps=() if eager else kept,
        keeps_made=kept if eager else (),
        trains=tape.trains,
        number_format=narrow,
        holds=(small_x, small_weight, *x_scale, *weight_scale),
        beside=tuple(_beside(tape, x, weight, y)) if eager else (),
    )


def _beside(tape: Tape, x: Value, weight: Value, y: Value) -> Iterator[tuple[Value, ...]]:
    """What the backward pass casts, with its FP32 copy: dy, then x and dyᵀ for dW, then W for dx."""
    small = {value.storage: _small(tape, value) for value in (x, weight, y)}

    def casting(value: Value) -> tuple[Value, Value]:
        return tape.make("", value.shape, "fp32", requires_grad=False), small[value.storage]

    yield casting(y)
    if tape.trains:
        yield small[y.storage], *casting(x)
        yield small[y.storage], small[x.storage], _small(tape, y)
    if x.requires_grad:
        yield small[y.storage], *casting(weight)


def _small(tape: Tape, value: Value) -> Value:
    return tape.make("", value.shape, tape.formats.narrow, requires_grad=False)


def _quantized(tape: Tape, path: str, name: str, x: Value) -> tuple[tuple[Value, ...], Value]:
    """The scale, where it is a tensor of its own, and the narrow copy."""
    narrow, eager = tape.formats.narrow, tape.kernels.casts == "eager"
    scale: tuple[Value, ...] = ()
    holds = [x]
    if eager:
        scale = (tape.make(f"{path}: scale of the {name}", (), "fp32", requires_grad=False),)
        tape.op(path, "", _scale(x.num_elements, tape), *scale, reads=(), holds=(x,))
        holds.append(tape.make(f"{path}: scaled {name}", x.shape, "fp32", requires_grad=False))
    small = tape.make(f"{path}: {name} in {narrow}", x.shape, narrow, requires_grad=False)
    tape.op(path, "", _cast(x.num_elements, tape), small, reads=(), holds=holds)
    return scale, small


def _scale(elements: Amount, tape: Tape) -> tuple[Piece, ...]:
    """The first pass, for the largest magnitude; what is done to that one number is left out."""
    return ops.reduction("aminmax", 1, elements, element_bytes=ELEMENT_BYTES[tape.formats.value])


def _cast(elements: Amount, tape: Tape) -> tuple[Piece, ...]:
    """Wide in, narrow out; where it is not one kernel, to FP32, times the scale, and out."""
    wide, narrow = ELEMENT_BYTES[tape.formats.value], ELEMENT_BYTES[tape.formats.narrow]
    if tape.kernels.casts == "at once":
        return ops.copy(elements, element_bytes=wide, output_element_bytes=narrow, op="cast")
    return (
        *ops.copy(elements, element_bytes=wide, output_element_bytes=4, op="cast"),
        *ops.pointwise("scale", elements),
        *ops.copy(elements, element_bytes=4, output_element_bytes=narrow, op="cast"),
    )


def _product(pieces: Sequence[Piece], read: Amount, written: Amount, tape: Tape) -> tuple[Piece, ...]:
    wide, narrow = ELEMENT_BYTES[tape.formats.value], ELEMENT_BYTES[tape.formats.narrow]
    return ops.moved(pieces, bytes_read=narrow * read, bytes_written=wide * written)


def _rows(x: Value) -> Amount:
    rows: Amount = 1
    for size in x.shape[:-1]:
        rows = rows * size
    return rows
