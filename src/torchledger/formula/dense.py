"""Linear maps, embedding tables and normalization, walked on the tape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torchledger import ops
from torchledger.formula.narrow import narrow_linear, runs_narrow
from torchledger.formula.pointwise import add, scaled
from torchledger.formula.tape import Tape
from torchledger.formula.training import adapts
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.ops import Piece
from torchledger.spec import NormSpec


def linear(tape: Tape, path: str, x: Value, outputs: Amount, *, bias: bool = False, inner: bool = False) -> Value:
    """Map y = x Wᵀ + b. Keeps x for the weight's gradient, and W for the input's where x has one.

    Under autocast both are cast to BF16 first, x by every linear map that reads it, and those copies are what is kept.
    The cast weight stays alive because it is kept; a cast bias does not.

    Args:
        tape: where it is walked.
        path: its module.
        x: [..., inputs].
        outputs: width of the result.
        bias: whether it has one.
        inner: a layer of attention or MLP, which may have an adapter beside it (LoRA) and may run in FP8.
    """
    if inner and tape.formats.narrow and runs_narrow(x.shape[-1], outputs):
        y = narrow_linear(tape, path, x, outputs, bias=bias)
    else:
        y = _linear(tape, path, x, outputs, bias=bias, trains=tape.trains)
    return _adapted(tape, path, x, y) if inner and tape.lora_rank and adapts(path, tape.lora_targets) else y


def _linear(tape: Tape, path: str, x: Value, outputs: Amount, *, bias: bool, trains: bool) -> Value:
    number_format = tape.matmul_format(x)
    x = tape.cast(path, f"{path}: input", x, number_format)
    weight = parameter(tape, path, "weight", (outputs, x.shape[-1]), number_format, trains=trains)
    own = (weight, parameter(tape, path, "bias", (outputs,), number_format, trains=trains)) if bias else (weight,)
    return multiplied_by(tape, path, x, own, trains=trains)


def multiplied_by(tape: Tape, path: str, x: Value, own: Sequence[Value], *, trains: bool) -> Value:
    """The product y = x Wᵀ + b itself.

    Args:
        tape: where it is walked.
        path: its module.
        x: [..., inputs], in the format of the product.
        own: the weight [outputs, inputs], and the bias if there is one, in that format.
        trains: whether they are trained.
    """
    weight, inputs, tokens, bias = own[0], x.shape[-1], rows_of(x), len(own) > 1
    outputs, size = weight.shape[0], x.element_bytes
    y = tape.make(f"{path}: output", (*x.shape[:-1], outputs), x.number_format)
    forward = ops.linear(tokens, inputs, outputs, bias=bias, element_bytes=size)
    backward: tuple[Piece, ...] = ops.linear_weight_gradient(tokens, inputs, outputs, element_bytes=size)
    if not trains:
        backward = ()
    if x.requires_grad:
        backward = (*ops.linear_input_gradient(tokens, inputs, outputs, element_bytes=size), *backward)
    if bias and trains:
        backward = (*backward, *ops.bias_gradient(tokens, outputs, element_bytes=size))
    return tape.op(
        path,
        "matmul",
        forward,
        y,
        reads=(x, *own),
        backward=backward,
        keeps=((x,) if trains else ()) + ((weight,) if x.requires_grad else ()),
        trains=trains,
        number_format=tape.product_format(x.number_format),
    )


def _adapted(tape: Tape, path: str, x: Value, y: Value) -> Value:
    """The sum y + s·B A x with A [rank, inputs] and B [outputs, rank] trained (LoRA, arXiv:2106.09685, equation 3)."""
    tape.fan_out(path, x, 2)
    down = _linear(tape, f"{path}.lora_a", x, tape.lora_rank, bias=False, trains=True)
    up = _linear(tape, f"{path}.lora_b", down, y.shape[-1], bias=False, trains=True)
    return add(tape, path, y, scaled(tape, path, up, f"{path}: scaled adapter"), f"{path}: adapted")


def embedding(tape: Tape, path: str, indices: Value, rows: Amount, width: Amount) -> Value:
    """Rows of a table. Keeps the indices."""
    tokens = rows_of(indices) * indices.shape[-1]
    y = tape.make(f"{path}: output", (*indices.shape, width), tape.formats.stored)
    size = y.element_bytes
    return tape.op(
        path,
        "embedding",
        ops.embedding(tokens, rows, width, element_bytes=size),
        y,
        reads=(indices,),
        backward=ops.embedding_backward(tokens, rows, width, element_bytes=size),
        keeps=(indices,),
        trains=tape.trains,
    )


def norm(tape: Tape, path: str, x: Value, spec: NormSpec) -> Value:
    """RMSNorm or LayerNorm of the last dimension, in the format of its weight where it has one.

    RMSNorm on the CPU is made of single operations in FP32 (`rms_norm_composite` in
    aten/src/ATen/native/layer_norm.cpp): it keeps its input, 1/√(mean + ε) of each row, and where it has a weight the
    normalized input too. LayerNorm, and RMSNorm on CUDA, are one kernel and keep their input and one or two numbers a
    row, on CUDA in FP32. Autocast of CUDA runs both in FP32.
    """
    formats, on_cuda = tape.formats, tape.kernels.device == "cuda"
    fused = bool(tape.operations) and tape.operations[-1].made[:1] == (x.storage,)
    result = formats.stored if spec.affine else x.number_format
    x = tape.cast(path, f"{path}: input", x, result)
    if on_cuda and formats.is_autocast:
        result = "fp32"
        x = tape.cast(path, f"{path}: input", x, result)
    elif not on_cuda and spec.kind == "rms":
        x = tape.cast(path, f"{path}: input", x, "fp32")
    y = tape.make(f"{path}: output", x.shape, x.number_format)
    forward, backward = _norm_pieces(x, spec)
    if tape.kernels.chains == "compiled" and fused:  # with the sum that it normalizes: what is at hand is not read
        forward = (replace(forward[0], work=replace(forward[0].work, bytes_read=0)), *forward[1:])
    backward = tuple(piece for piece in backward if tape.trains or piece.gradient_of != "weight")
    made, kept = _norm_kept(tape, path, x, spec)
    y = tape.op(
        path,
        f"{spec.kind}_norm",
        forward,
        y,
        *made,
        reads=(x,),
        backward=backward,
        keeps_made=kept,
        trains=spec.affine and tape.trains,
    )
    return replace(
        tape.cast(path, f"{path}: output", y, result), is_cheap=tape.kernels.chains == "compiled" and y.requires_grad
    )


def weighted(spec: NormSpec) -> NormSpec:
    """The norm of queries, keys and latents: it has a weight and no bias, whatever the norms of the stream have."""
    return replace(spec, affine=True, bias=False)


def _norm_pieces(x: Value, spec: NormSpec) -> tuple[Sequence[Piece], Sequence[Piece]]:
    rows, size, element = rows_of(x), x.shape[-1], x.element_bytes
    if spec.kind == "rms":
        return (
            ops.rms_norm(rows, size, affine=spec.affine, element_bytes=element),
            ops.rms_norm_backward(rows, size, affine=spec.affine, element_bytes=element),
        )
    return (
        ops.layer_norm(rows, size, affine=spec.affine, bias=spec.bias, element_bytes=element),
        ops.layer_norm_backward(rows, size, affine=spec.affine, bias=spec.bias, element_bytes=element),
    )


def _norm_kept(tape: Tape, path: str, x: Value, spec: NormSpec) -> tuple[tuple[Value, ...], tuple[Value, ...]]:
    """What a norm makes beside its result, and what it keeps.

    One kernel keeps its input and statistics; single operations keep the normalized input for the weight's gradient,
    all else for the input's.
    """
    on_cuda, rows = tape.kernels.device == "cuda", (*x.shape[:-1], 1)
    statistics = "fp32" if on_cuda else x.number_format
    composite = spec.kind == "rms" and not on_cuda
    normalized = None
    if spec.kind == "layer":
        made = [tape.make(f"{path}: {name}", rows, statistics) for name in ("mean", "1/deviation")]
    else:
        made = [tape.make(f"{path}: 1/root mean square", rows, "fp32")]
        if spec.affine and composite:
            normalized = tape.make(f"{path}: normalized", x.shape, "fp32")
            made.append(normalized)
    if spec.affine and spec.unit_offset:  # Gemma's weight is stored as w and applied as 1 + w, a tensor of its own
        stored = x.number_format if on_cuda else tape.formats.stored
        made.append(tape.make(f"{path}: 1 + weight", (x.shape[-1],), stored))
    kept = tuple(
        value for value in (x, *made) if not composite or (tape.trains if value is normalized else x.requires_grad)
    )
    return tuple(made), kept


def parameter(
    tape: Tape, path: str, name: str, shape: tuple[Amount, ...], number_format: str, *, trains: bool
) -> Value:
    """A parameter as a matmul of that format reads it: a copy under autocast."""
    # Autocast casts a trained parameter once, however many read it.
    stored_as = number_format if tape.is_cast and trains else tape.formats.stored
    stored = tape.given(f"{path}: {name}", shape, stored_as, requires_grad=trains)
    return tape.cast(path, f"{path}: {name}", stored, number_format)


def rows_of(x: Value) -> Amount:
    """Rows of the last dimension."""
    return replace(x, shape=x.shape[:-1]).num_elements
