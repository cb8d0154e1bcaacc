"""Linear maps, embedding tables and normalization, walked on the tape."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.tape import Tape, Value
from torchledger.ledger import Amount
from torchledger.spec import NormSpec


def linear(tape: Tape, path: str, x: Value, outputs: Amount, *, bias: bool = False) -> Value:
    """Map y = x Wᵀ + b. Keeps x for the weight's gradient, and W for the input's where x has one.

    Under autocast both are cast to BF16 first, x by every linear map that reads it, and those copies are what is kept.
    The cast weight stays alive because it is kept; a cast bias does not.
    """
    inputs, tokens = x.shape[-1], _rows(x)
    number_format = tape.matmul_format(x)
    x = tape.cast(path, f"{path}: input", x, number_format)
    weight = _parameter(tape, path, "weight", (outputs, inputs), number_format)
    if bias:
        _parameter(tape, path, "bias", (outputs,), number_format)
    tape.save("matmul", x)
    if x.requires_grad:
        tape.save("matmul", weight)
    y = tape.make(f"{path}: output", (*x.shape[:-1], outputs), number_format)
    size = x.element_bytes
    tape.run(path, ops.linear(tokens, inputs, outputs, bias=bias, element_bytes=size), number_format, y)
    backward = ops.linear_weight_gradient(tokens, inputs, outputs, element_bytes=size)
    if x.requires_grad:
        backward = (*ops.linear_input_gradient(tokens, inputs, outputs, element_bytes=size), *backward)
    if bias:
        backward = (*backward, *ops.bias_gradient(tokens, outputs, element_bytes=size))
    tape.then(path, backward, number_format)
    return y


def embedding(tape: Tape, path: str, indices: Value, rows: Amount, width: Amount) -> Value:
    """Rows of a table. Keeps the indices."""
    tokens = _rows(indices) * indices.shape[-1]
    y = tape.make(f"{path}: output", (*indices.shape, width), "fp32")
    tape.save("embedding", indices)
    tape.run(path, ops.embedding(tokens, rows, width), "fp32", y)
    tape.then(path, ops.embedding_backward(tokens, rows, width), "fp32")
    return y


def norm(tape: Tape, path: str, x: Value, spec: NormSpec) -> Value:
    """RMSNorm or LayerNorm of the last dimension, in FP32 where it has a weight.

    RMSNorm on the CPU is made of single operations (`rms_norm_composite` in aten/src/ATen/native/layer_norm.cpp): it
    keeps its input, 1/√(mean + ε) of each row, and where it has a weight the normalized input too. LayerNorm is one
    kernel and keeps its input and two numbers a row.
    """
    rows, size = _rows(x), x.shape[-1]
    kept: tuple[Value, ...]
    number_format = x.number_format if not spec.affine else "fp32"
    x = tape.cast(path, f"{path}: input", x, "fp32" if spec.affine or spec.kind == "rms" else number_format)
    y = tape.make(f"{path}: output", x.shape, x.number_format)
    if spec.kind == "rms":
        forward = ops.rms_norm(rows, size, affine=spec.affine)
        backward = ops.rms_norm_backward(rows, size, affine=spec.affine)
        kept = _rms_kept(tape, path, x, spec)
    else:
        forward = ops.layer_norm(rows, size, affine=spec.affine, bias=spec.bias, element_bytes=x.element_bytes)
        backward = ops.layer_norm_backward(
            rows, size, affine=spec.affine, bias=spec.bias, element_bytes=x.element_bytes
        )
        statistics = (*x.shape[:-1], 1)
        kept = (
            tape.make(f"{path}: mean", statistics, x.number_format),
            tape.make(f"{path}: 1/deviation", statistics, x.number_format),
            *_shifted_weight(tape, path, size, spec),
        )
    tape.run(path, forward, x.number_format, y, *kept)
    tape.save(f"{spec.kind}_norm", x, *kept)
    tape.then(path, backward, x.number_format)
    return tape.cast(path, f"{path}: output", y, number_format)


def weighted(spec: NormSpec) -> NormSpec:
    """The norm of queries, keys and latents: it has a weight and no bias, whatever the norms of the stream have."""
    return replace(spec, affine=True, bias=False)


def _rms_kept(tape: Tape, path: str, x: Value, spec: NormSpec) -> tuple[Value, ...]:
    kept = [tape.make(f"{path}: 1/root mean square", (*x.shape[:-1], 1), "fp32")]
    if spec.affine:
        kept.append(tape.make(f"{path}: normalized", x.shape, "fp32"))
    return (*kept, *_shifted_weight(tape, path, x.shape[-1], spec))


def _shifted_weight(tape: Tape, path: str, size: Amount, spec: NormSpec) -> tuple[Value, ...]:
    """Gemma's weight is stored as w and applied as 1 + w, which is a tensor of its own."""
    return (tape.make(f"{path}: 1 + weight", (size,), "fp32"),) if spec.affine and spec.unit_offset else ()


def _parameter(tape: Tape, path: str, name: str, shape: tuple[Amount, ...], number_format: str) -> Value:
    parameter = tape.given(f"{path}: {name}", shape, "fp32", requires_grad=True)
    return tape.cast(path, f"{path}: {name}", parameter, number_format)


def _rows(x: Value) -> Amount:
    return replace(x, shape=x.shape[:-1]).num_elements
