"""Operations element by element, walked on the tape: what each keeps follows torch's derivatives.yaml."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.ops import Piece


def add(tape: Tape, path: str, a: Value, b: Value, name: str = "sum") -> Value:
    """Sum a + b, in the wider of their formats. Keeps nothing; a gradient goes to both as it is."""
    y = tape.make(name, a.shape, wider(a, b))
    pieces = ops.pointwise("add", a.num_elements, element_bytes=y.element_bytes)
    return tape.op(path, "add", pieces, y, reads=(a, b), passes=2)


def scaled(tape: Tape, path: str, x: Value, name: str, *, keeps_number: bool = True) -> Value:
    """Product of x and a number. A Python number is kept."""
    y = tape.make(name, x.shape, x.number_format)
    if keeps_number and x.requires_grad:
        tape.save_number("mul", f"{name}: number")
    pieces, back = _both("scale", x)
    return tape.op(path, "mul", pieces, y, reads=(x,), backward=back)


def multiplied(tape: Tape, path: str, a: Value, b: Value, name: str) -> Value:
    """Product a · b, b maybe one column that is repeated. Keeps each for the other's gradient, if that has one."""
    y = tape.make(name, a.shape, wider(a, b))
    n, size = a.num_elements, y.element_bytes
    pieces = ops.pointwise("mul", n, element_bytes=size)
    flows = (a.requires_grad, b.requires_grad)
    back = ops.pointwise_backward("mul", n, element_bytes=size, num_gradients=2) if all(flows) else pieces
    keeps = tuple(each for each, flow in zip((a, b), reversed(flows), strict=True) if flow)
    y = tape.op(path, "mul", pieces, y, reads=(a, b), backward=back, keeps=keeps)
    return replace(y, is_cheap=tape.kernels.chains == "compiled")


def activation(tape: Tape, path: str, x: Value, kind: str) -> Value:
    """An activation function. GELU and SiLU keep their input, ReLU its output, ReLU² ReLU's output.

    A compiler keeps the input of each and makes the output again.
    """
    if kind == "relu_squared" and tape.kernels.device == "cuda" and tape.formats.is_autocast:
        return _squared(tape, path, tape.cast(path, "relu output in FP32", activation(tape, path, x, "relu"), "fp32"))
    y = tape.make(f"{kind} output", x.shape, x.number_format)
    pieces, back = _both(kind, x)
    if tape.kernels.chains == "compiled":
        return replace(tape.op(path, kind, pieces, y, reads=(x,), backward=back, keeps=(x,)), is_cheap=True)
    if kind in {"silu", "gelu", "gelu_tanh"}:
        return tape.op(path, kind, pieces, y, reads=(x,), backward=back, keeps=(x,))
    made = (y,) if kind != "relu_squared" else (y, tape.make("relu output", x.shape, x.number_format))
    return tape.op(path, kind, pieces, *made, reads=(x,), backward=back, keeps_made=(made[-1],))


def _squared(tape: Tape, path: str, x: Value) -> Value:
    """The product x·x. Keeps x: a power, which CUDA's autocast runs in FP32."""
    y = tape.make("relu_squared output", x.shape, x.number_format)
    pieces, back = _both("square", x)
    return tape.op(path, "pow", pieces, y, reads=(x,), backward=back, keeps=(x,))


def gated(tape: Tape, path: str, gate: Value, up: Value, kind: str) -> Value:
    """activation(gate) · up as one kernel (Megatron's bias_swiglu, or a compiler's). Keeps both operands."""
    y = tape.make("gate · up", gate.shape, wider(gate, up))
    n, size = y.num_elements, y.element_bytes
    forward = (*ops.pointwise(kind, n), *ops.pointwise("mul", n))
    backward = (*ops.pointwise_backward("mul", n, num_gradients=2), *ops.pointwise_backward(kind, n))
    y = tape.op(
        path,
        "gated",
        ops.moved(forward, bytes_read=2 * size * n, bytes_written=size * n),
        y,
        reads=(gate, up),
        backward=ops.moved(backward, bytes_read=3 * size * n, bytes_written=2 * size * n),
        keeps=(gate, up),
    )
    return replace(y, is_cheap=tape.kernels.chains == "compiled")


def residual(tape: Tape, h: Value, x: Value, dropout: float, name: str = "sum") -> Value:
    """What a branch adds to the stream, h + dropout(x). One kernel keeps the mask too (Megatron's bias_dropout_add)."""
    if dropout <= 0:
        return add(tape, "", h, x, name)
    if tape.kernels.chains == "eager":
        return add(tape, "", h, dropped(tape, "", x, f"{name} branch"), name)
    y, mask = tape.make(name, h.shape, wider(h, x)), tape.make(f"{name} dropout mask", h.shape, "bool")
    n, size = y.num_elements, y.element_bytes
    forward = (*ops.dropout(n), *ops.pointwise("add", n))
    return tape.op(
        "",
        "dropout_add",
        ops.moved(forward, bytes_read=2 * size * n, bytes_written=(size + 1) * n),
        y,
        mask,
        reads=(h, x),
        backward=ops.dropout_backward(n, element_bytes=size),
        keeps_made=(mask,),
        passes=1,
    )


def soft_capped(tape: Tape, path: str, x: Value, name: str) -> Value:
    """cap·tanh(x/cap). Keeps the tanh, and the cap twice, as a divisor and as a factor."""
    inner = tape.make(f"{name} tanh", x.shape, x.number_format)
    y = tape.make(f"{name} capped", x.shape, x.number_format)
    if x.requires_grad:
        tape.save_number("div", f"{name} cap: divisor")
        tape.save_number("mul", f"{name} cap: factor")
    pieces, back = _both("soft_cap", x)
    return tape.op(path, "tanh", pieces, y, inner, reads=(x,), backward=back, keeps_made=(inner,))


def clamped(tape: Tape, path: str, x: Value) -> Value:
    """Value x held between two numbers. Keeps its input."""
    y = tape.make(f"{path}: clamped", x.shape, x.number_format)
    pieces, back = _both("clamp", x)
    return tape.op(path, "clamp", pieces, y, reads=(x,), backward=back, keeps=(x,))


def sigmoid(tape: Tape, path: str, x: Value, name: str) -> Value:
    """1/(1 + e^-x). Keeps its output."""
    y = tape.make(name, x.shape, x.number_format)
    pieces, back = _both("sigmoid", x)
    return tape.op(path, "sigmoid", pieces, y, reads=(x,), backward=back, keeps_made=(y,))


def softmax(tape: Tape, path: str, x: Value, name: str) -> Value:
    """Over the last dimension. Keeps its output. CUDA's autocast gives it in FP32: of BF16 by a cast before it."""
    if tape.kernels.device == "cuda" and tape.formats.is_autocast and x.number_format == "bf16":
        x = tape.cast(path, f"{name}: input in FP32", x, "fp32")
    number_format = "fp32" if tape.kernels.device == "cuda" and tape.formats.is_autocast else x.number_format
    y = tape.make(name, x.shape, number_format)
    columns = x.shape[-1]
    rows = x.sliced(1).num_elements
    pieces = ops.softmax(rows, columns, element_bytes=x.element_bytes, output_element_bytes=y.element_bytes)
    back = ops.softmax_backward(rows, columns, element_bytes=y.element_bytes)
    return tape.op(path, "softmax", pieces, y, reads=(x,), backward=back, keeps_made=(y,))


def dropped(tape: Tape, path: str, x: Value, name: str) -> Value:
    """Dropout. On the CPU the mask is drawn in the format of x, and kept; on CUDA it is boolean, in one kernel."""
    y = tape.make(f"{name} after dropout", x.shape, x.number_format)
    n, size = x.num_elements, x.element_bytes
    if tape.kernels.device == "cuda":
        mask = tape.make(f"{name} dropout mask", x.shape, "bool")
        pieces = ops.moved(ops.dropout(n, element_bytes=size), bytes_read=size * n, bytes_written=(size + 1) * n)
        back = ops.dropout_backward(n, element_bytes=size)
        return tape.op(path, "dropout", pieces, y, mask, reads=(x,), backward=back, keeps_made=(mask,))
    mask = tape.make(f"{name} dropout mask", x.shape, x.number_format, requires_grad=False)
    mask_piece, apply = ops.dropout(n, element_bytes=size, mask_element_bytes=size)
    tape.op(path, "dropout", (mask_piece,), mask, reads=(), number_format=x.number_format)
    back = ops.dropout_backward(n, element_bytes=size, mask_element_bytes=size)
    return tape.op(path, "mul", (apply,), y, reads=(x,), backward=back, keeps=(mask,))


def wider(a: Value, b: Value) -> str:
    """The format of a result of both."""
    return "fp32" if "fp32" in {a.number_format, b.number_format} else a.number_format


def _both(name: str, x: Value) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    elements: Amount = x.num_elements
    size = x.element_bytes
    return (
        ops.pointwise(name, elements, element_bytes=size),
        ops.pointwise_backward(name, elements, element_bytes=size),
    )
