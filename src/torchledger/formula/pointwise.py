"""Operations element by element, walked on the tape: what each keeps follows torch's derivatives.yaml."""

from __future__ import annotations

from torchledger import ops
from torchledger.formula.tape import Tape, Value


def add(tape: Tape, path: str, a: Value, b: Value, name: str = "sum") -> Value:
    """Sum a + b, in the wider of their formats. Keeps nothing."""
    y = tape.make(name, a.shape, _wider(a, b))
    tape.run(path, ops.pointwise("add", a.num_elements, element_bytes=y.element_bytes), y.number_format, y)
    return y


def scaled(tape: Tape, path: str, x: Value, name: str, *, keeps_number: bool = True) -> Value:
    """Product of x and a number. A Python number is kept."""
    y = tape.make(name, x.shape, x.number_format)
    if keeps_number:
        tape.save_number("mul", f"{name}: number")
    tape.run(path, ops.pointwise("scale", x.num_elements, element_bytes=x.element_bytes), x.number_format, y)
    tape.then(path, ops.pointwise_backward("scale", x.num_elements, element_bytes=x.element_bytes), x.number_format)
    return y


def multiplied(tape: Tape, path: str, a: Value, b: Value, name: str) -> Value:
    """Product a · b, both with gradients, b maybe one column that is repeated. Keeps both."""
    y = tape.make(name, a.shape, _wider(a, b))
    tape.save("mul", a, b)
    tape.run(path, ops.pointwise("mul", a.num_elements, element_bytes=y.element_bytes), y.number_format, y)
    tape.then(
        path,
        ops.pointwise_backward("mul", a.num_elements, element_bytes=y.element_bytes, num_gradients=2),
        y.number_format,
    )
    return y


def activation(tape: Tape, path: str, x: Value, kind: str) -> Value:
    """An activation function. GELU and SiLU keep their input, ReLU its output, ReLU² ReLU's output."""
    y = tape.make(f"{kind} output", x.shape, x.number_format)
    if kind in {"silu", "gelu", "gelu_tanh"}:
        tape.save(kind, x)
    made = (y,) if kind != "relu_squared" else (y, tape.make("relu output", x.shape, x.number_format))
    tape.run(path, ops.pointwise(kind, x.num_elements, element_bytes=x.element_bytes), x.number_format, *made)
    if kind in {"relu", "relu_squared"}:
        tape.save(kind, made[-1])
    tape.then(path, ops.pointwise_backward(kind, x.num_elements, element_bytes=x.element_bytes), x.number_format)
    return y


def soft_capped(tape: Tape, path: str, x: Value, name: str) -> Value:
    """cap·tanh(x/cap). Keeps the tanh, and the cap twice, as a divisor and as a factor."""
    inner = tape.make(f"{name} tanh", x.shape, x.number_format)
    y = tape.make(f"{name} capped", x.shape, x.number_format)
    tape.save_number("div", f"{name} cap: divisor")
    tape.save_number("mul", f"{name} cap: factor")
    tape.run(path, ops.pointwise("soft_cap", x.num_elements, element_bytes=x.element_bytes), x.number_format, y, inner)
    tape.save("tanh", inner)
    tape.then(path, ops.pointwise_backward("soft_cap", x.num_elements, element_bytes=x.element_bytes), x.number_format)
    return y


def clamped(tape: Tape, path: str, x: Value) -> Value:
    """Value x held between two numbers. Keeps its input."""
    y = tape.make(f"{path}: clamped", x.shape, x.number_format)
    tape.save("clamp", x)
    tape.run(path, ops.pointwise("clamp", x.num_elements, element_bytes=x.element_bytes), x.number_format, y)
    tape.then(path, ops.pointwise_backward("clamp", x.num_elements, element_bytes=x.element_bytes), x.number_format)
    return y


def sigmoid(tape: Tape, path: str, x: Value, name: str) -> Value:
    """1/(1 + e^-x). Keeps its output."""
    y = tape.make(name, x.shape, x.number_format)
    tape.run(path, ops.pointwise("sigmoid", x.num_elements, element_bytes=x.element_bytes), x.number_format, y)
    tape.save("sigmoid", y)
    tape.then(path, ops.pointwise_backward("sigmoid", x.num_elements, element_bytes=x.element_bytes), x.number_format)
    return y


def softmax(tape: Tape, path: str, x: Value, name: str) -> Value:
    """Over the last dimension. Keeps its output."""
    y = tape.make(name, x.shape, x.number_format)
    columns = x.shape[-1]
    rows = x.sliced(1).num_elements
    tape.run(path, ops.softmax(rows, columns, element_bytes=x.element_bytes), x.number_format, y)
    tape.save("softmax", y)
    tape.then(path, ops.softmax_backward(rows, columns, element_bytes=x.element_bytes), x.number_format)
    return y


def dropped(tape: Tape, path: str, x: Value, name: str) -> Value:
    """Dropout. On the CPU the mask is drawn in the format of x, and kept."""
    mask = tape.make(f"{name} dropout mask", x.shape, x.number_format)
    y = tape.make(f"{name} after dropout", x.shape, x.number_format)
    size = x.element_bytes
    mask_piece, apply = ops.dropout(x.num_elements, element_bytes=size, mask_element_bytes=size)
    tape.run(path, (mask_piece,), x.number_format, mask)
    tape.save("mul", mask)
    tape.run(path, (apply,), x.number_format, y)
    tape.then(path, ops.dropout_backward(x.num_elements, element_bytes=size, mask_element_bytes=size), x.number_format)
    return y


def _wider(a: Value, b: Value) -> str:
    return "fp32" if "fp32" in {a.number_format, b.number_format} else a.number_format
