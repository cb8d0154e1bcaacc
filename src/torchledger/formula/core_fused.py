"""The core of attention as fused kernels run it: FlashAttention, torch's kernels of CUDA, Megatron's fused softmax."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.heads import Context, Heads
from torchledger.formula.layout import contiguous
from torchledger.formula.pointwise import dropped, soft_capped
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.ops import Piece
from torchledger.spec import ModelSpec

#: Widest head of the flash kernel (`check_head_dim_size_flash` in torch's sdp_utils.cpp).
_WIDEST = 256


def flash(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """FlashAttention-2 (arXiv:2307.08691): keeps queries, K key-value heads, its output and a logsumexp a row.

    Blocks that a mask hides are not run. A value that is a slice of a joint projection is copied out of it where the
    others have left it, so that the projection is not kept for its sake (TransformerEngine's `contiguous()`).
    """
    B, T, H, _ = heads.query.shape
    number_format = tape.matmul_format(heads.query)
    q, k, v = (tape.cast("", f"{name} read", x, number_format) for name, x in zip(Heads._fields, heads, strict=True))
    if v.storage != q.storage and tape.storages[v.storage].num_bytes != v.num_elements * v.element_bytes:
        v = tape.copied("", "value read", v)
    y = tape.make("mixed values", (B, T, H, spec.value_head_size), number_format)
    logsumexp = tape.make("logsumexp", (B, H, T), "fp32")
    forward, backward = _pieces(
        spec,
        (B, T, H),
        Heads(q, k, v),
        context,
        y.element_bytes,
        key_value_batch=B * spec.num_key_value_heads,
        executed=True,
    )
    y = tape.op(
        "",
        "attention",
        forward,
        y,
        logsumexp,
        reads=(q, k, v),
        backward=backward,
        keeps=(q, k, v),
        keeps_made=(y, logsumexp),
    )
    return tape.merge("", "mixed values", y, (1, 1, 2))


def is_taken_by_cuda(spec: ModelSpec, context: Context, number_format: str) -> bool:
    """Whether one of CUDA's fused kernels takes it."""
    alignment = 4 if number_format == "fp32" else 8
    aligned = spec.head_size % alignment == 0 and spec.value_head_size % alignment == 0
    return aligned or _is_flash(spec, context, number_format)


def _is_flash(spec: ModelSpec, context: Context, number_format: str) -> bool:
    equal = spec.head_size == spec.value_head_size and spec.head_size <= _WIDEST
    return context.mask is None and number_format != "fp32" and equal


def of_cuda(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """What scaled-dot-product attention of PyTorch 2.13 runs on an A100.

    Flash takes 16-bit operands without a mask, heads equal and padded to multiples of 8; the memory-efficient kernel
    takes a mask, FP32 and narrower values, heads of multiples of 16 bytes. Both keep operands, output, a logsumexp a
    row (padded to 32 rows by the latter) and the state of a random generator.

    Queries, keys and values are [B, heads, T, size], as `core.operands` makes them.

    Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, attention.cu.
    """
    B, H, T, d = heads.query.shape
    number_format = heads.query.number_format
    is_flash = _is_flash(spec, context, number_format)
    q, k, v = (_padded(tape, x, -d % 8 if is_flash else 0) for x in heads)
    kept: tuple[Value, ...] = (q, k, v)
    if context.mask is not None:
        kept = (*kept, _aligned(tape, context.mask))
    y = tape.make("mixed values", (B, T, H, v.shape[-1]), number_format)
    rows = T if is_flash else -(-T // 32) * 32
    made = (
        tape.make("logsumexp", (B, H, rows), "fp32"),
        tape.make("random seed", (2,) if is_flash else (), "int64", requires_grad=False),
        tape.make("random offset", (), "int64", requires_grad=False),
    )
    forward, backward = _pieces(spec, (B, T, H), Heads(q, k, v), context, y.element_bytes)
    y = tape.op(
        "", "attention", forward, y, *made, reads=(q, k, v), backward=backward, keeps=kept, keeps_made=(y, *made)
    )
    return tape.merge("", "mixed values", y.sliced(spec.value_head_size), (1, 1, 2))


def with_scores(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """Megatron's: Q Kᵀ; scale, mask and softmax in one kernel; [dropout]; times V. Scores are of the stream's format.

    Keeps queries, keys and values, the softmax (2 bytes an element), and with dropout its mask (1 byte) and its result:
    the 5·a·s²·b bytes of arXiv:2205.05198, section 4.1. Layouts are such that no operand is copied.
    """
    B, T, H, d = heads.query.shape
    groups, number_format = H // spec.num_key_value_heads, tape.matmul_format(heads.query)
    q, k, v = (_flat(tape, name, x, groups) for name, x in zip(Heads._fields, heads, strict=True))
    q, k, v = (
        tape.cast("", f"{name} read", x, number_format) for name, x in zip(Heads._fields, (q, k, v), strict=True)
    )
    sizes, size = (B * H, T, T, d, spec.value_head_size), q.element_bytes
    score, value = ops.attention_math(*sizes, pairs=context.pairs, element_bytes=size)
    d_weights, d_value, d_query, d_key = ops.attention_math_backward(*sizes, pairs=context.pairs, element_bytes=size)
    scores = tape.make("scores", (B * H, T, T), number_format)
    scores = tape.op("", "bmm", (score,), scores, reads=(q, k), backward=(d_query, d_key), keeps=(q, k))
    if spec.attention.logit_soft_cap is not None:
        scores = soft_capped(tape, "", scores, "scores")
    weights = tape.make("attention weights", scores.shape, number_format)
    softmax = ops.softmax(B * H * T, T, element_bytes=size, op="scaled_masked_softmax")
    back = ops.softmax_backward(B * H * T, T, element_bytes=size, op="scaled_masked_softmax_backward")
    weights = tape.op("", "softmax", softmax, weights, reads=(scores,), backward=back, keeps_made=(weights,))
    if spec.attention.dropout > 0:
        weights = dropped(tape, "", weights, "attention weights")
    mixed = tape.make("mixed values", (B, T, H, spec.value_head_size), number_format)
    mixed = tape.op("", "bmm", (value,), mixed, reads=(weights, v), backward=(d_weights, d_value), keeps=(weights, v))
    return tape.merge("", "mixed values", tape.copied("", "mixed values", mixed), (1, 1, 2))


def _pieces(
    spec: ModelSpec,
    sizes: tuple[Amount, Amount, Amount],
    heads: Heads,
    context: Context,
    element_bytes: Amount,
    *,
    key_value_batch: Amount = None,
    executed: bool = False,
) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Forward and backward of one kernel: model FLOPs of the model's heads, the rest of heads as they are padded."""
    B, T, H = sizes
    head_size = heads.query.shape[-1]
    value_size = spec.value_head_size + (head_size - spec.head_size)
    found = []
    for kernel in (ops.attention_fused, ops.attention_fused_backward):
        run, model = (
            kernel(
                B * H,
                T,
                T,
                width,
                value_width,
                key_value_batch=key_value_batch,
                pairs=context.pairs,
                executed_pairs=context.pairs if executed else None,
                element_bytes=element_bytes,
            )
            for width, value_width in ((head_size, value_size), (spec.head_size, spec.value_head_size))
        )
        work = replace(run[0].work, flops_full=model[0].work.flops_full, flops_exact=model[0].work.flops_exact)
        pieces = (replace(run[0], work=work), *model[1:])
        if spec.attention.dropout > 0:  # of the weights, inside the kernel
            pieces = (*pieces, *ops.dropout(B * H * T * T, element_bytes=0, mask_element_bytes=0))
        found.append(pieces)
    needed = (heads.query.requires_grad, heads.key.requires_grad, heads.value.requires_grad)
    return found[0], ops.needed_only(found[1], needed, spec.head_size, spec.value_head_size)


def _padded(tape: Tape, x: Value, missing: Amount) -> Value:
    """Heads of a multiple of 8: a copy with zeros behind."""
    if missing == 0:
        return x
    y = tape.make("padded heads", (*x.shape[:-1], x.shape[-1] + missing), x.number_format)
    pieces = ops.copy(y.num_elements, element_bytes=y.element_bytes)
    return tape.op("", "", pieces, y, reads=(x,), backward=pieces)


def _aligned(tape: Tape, mask: Value) -> Value:
    """A mask whose rows start at multiples of 8 elements: a copy where they do not (`preprocess_mask`)."""
    missing = -mask.shape[-1] % 8
    if missing == 0:
        return mask
    y = tape.make("padded mask", (*mask.shape[:-1], mask.shape[-1] + missing), mask.number_format, requires_grad=False)
    return tape.op("", "", ops.copy(y.num_elements, element_bytes=y.element_bytes), y, reads=(mask,))


def _flat(tape: Tape, name: str, x: Value, groups: Amount) -> Value:
    """[B, T, K, size] -> [B·H, T, size] in the layout of a kernel that takes any; shared heads are copied out."""
    B, T, K, size = x.shape
    if groups != 1 and name != "query":
        made = tape.make(f"{name}: repeated", (B, T, K * groups, size), x.number_format)
        pieces = ops.copy(made.num_elements, element_bytes=made.element_bytes)
        x = tape.op("", "", pieces, made, reads=(x,), backward=pieces)
    shape = (B * x.shape[2], T, size)
    return replace(x, shape=shape, strides=contiguous(shape))
