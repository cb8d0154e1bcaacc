"""The attention of a layer, walked on the tape: projections, norms of queries and keys, positions."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.formula.core import core
from torchledger.formula.dense import linear, norm, weighted
from torchledger.formula.heads import Context, Heads
from torchledger.formula.joint import is_joint, joint_linear
from torchledger.formula.pointwise import clamped, wider
from torchledger.formula.tape import Tape
from torchledger.formula.value import Value
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe


def attention(tape: Tape, spec: ModelSpec, recipe: Recipe, x: Value, context: Context) -> Value:
    """MHA, GQA or MQA: x [B, T, D] -> [B, T, D]."""
    part = spec.attention
    query, key, value = _projected(tape, spec, recipe, x)
    query, key = _normed(tape, spec, "query", query), _normed(tape, spec, "key", key)
    query, key = rotated(tape, spec, "query", query), rotated(tape, spec, "key", key)
    mixed = core(tape, spec, recipe, Heads(query, key, value), context)
    return linear(tape, "output", mixed, spec.hidden_size, bias=part.output_bias, inner=True)


def _projected(tape: Tape, spec: ModelSpec, recipe: Recipe, x: Value) -> tuple[Value, Value, Value]:
    """Queries [B, T, H, d], keys and values [B, T, K, d], each by a matmul, or all by one."""
    part, H, K = spec.attention, spec.attention.num_heads, _key_heads(spec)
    size = spec.head_size
    widths = {"query": H * size, "key": K * size, "value": K * size}
    if tape.kernels.joint:
        bias = part.query_bias or part.key_bias or part.value_bias
        y = linear(tape, "query_key_value", x, sum(widths.values()), bias=bias, inner=True)
    elif is_joint(part, recipe.precision, rank=tape.lora_rank, targets=tape.lora_targets):
        y = joint_linear(tape, "query_key_value", x, widths, bias=part.query_bias)
    else:
        tape.fan_out("", x, 3)
        own = zip(widths, (H, K, K), (part.query_bias, part.key_bias, part.value_bias), strict=True)
        query, key, value = (
            _parted(tape, spec, name, linear(tape, name, x, widths[name], bias=bias, inner=True), heads)
            for name, heads, bias in own
        )
        return query, key, value
    y = _parted(tape, spec, "query_key_value", y, H + 2 * K)
    if not tape.kernels.joint and y.requires_grad:  # a kernel set with one matrix writes the gradients in their places
        tape.then("", ops.copy(y.num_elements, element_bytes=y.element_bytes, op="concatenate"), y.number_format)
    query, key, value = (replace(y, shape=(*y.shape[:2], heads, size)) for heads in (H, K, K))
    return query, key, value


def latent_attention(tape: Tape, spec: ModelSpec, recipe: Recipe, x: Value, context: Context) -> Value:
    """MLA (DeepSeek-V2, arXiv:2405.04434, equations 37 to 47): keys and values from one small vector a token."""
    part, H = spec.attention, spec.attention.num_heads
    tape.fan_out("", x, 2)
    plain, turned, value_size = part.plain_head_size, part.rotary_head_size, part.value_head_size
    if part.query_rank == 0:
        query = linear(tape, "query", x, H * spec.head_size, bias=part.query_bias, inner=True)
    else:
        down = linear(tape, "query_down", x, part.query_rank, bias=part.query_bias, inner=True)
        normed = norm(tape, "query_down_norm", down, weighted(spec.norm))
        query = linear(tape, "query_up", normed, H * spec.head_size, inner=True)
    query = query.parted(H, spec.head_size)
    down = linear(tape, "key_value_down", x, part.key_value_rank + turned, bias=part.key_bias, inner=True)
    latent = norm(tape, "key_value_down_norm", down.sliced(part.key_value_rank), weighted(spec.norm))
    expanded = linear(tape, "key_value_up", latent, H * (plain + value_size), inner=True).parted(H, plain + value_size)
    turned_query = rotated(tape, spec, "query", query.sliced(turned))
    turned_key = rotated(tape, spec, "key", down.sliced(turned).parted(1, turned))
    query = _joined(tape, "query", query, turned_query)
    key = _joined(tape, "key", expanded.sliced(plain + turned), turned_key)
    mixed = core(tape, spec, recipe, Heads(query, key, expanded.sliced(value_size)), context)
    return linear(tape, "output", mixed, spec.hidden_size, bias=part.output_bias, inner=True)


def rotated(tape: Tape, spec: ModelSpec, path: str, x: Value) -> Value:
    """The first `rotary_size` dims of each head turned, in FP32. Keeps the tables, which are there anyway.

    As one kernel it reads and writes the format of x, all of each head.
    """
    size = spec.rotary_size
    if size == 0:
        return x
    tokens, heads = x.shape[0] * x.shape[1], x.shape[2]
    if tape.kernels.chains != "eager":
        y = tape.make(f"{path}: rotated", x.shape, x.number_format)
        n, width = x.num_elements, x.element_bytes
        pieces = ops.moved(ops.rotary(tokens, heads, size), bytes_read=width * n, bytes_written=width * n)
        return tape.op("", "rotary", pieces, y, reads=(x,), backward=pieces, number_format="fp32")
    part = tape.cast("", f"{path}: before rotation", x.sliced(size), "fp32")
    y = tape.make(f"{path}: rotated", part.shape, "fp32")
    pieces = ops.rotary(tokens, heads, size)
    y = tape.op("", "rotary", pieces, y, reads=(part,), backward=pieces)
    y = tape.cast("", f"{path}: rotated", y, x.number_format)
    return y if x.shape[-1] == size else _joined(tape, path, x, y)


def _key_heads(spec: ModelSpec) -> Amount:
    heads: Amount = spec.num_key_value_heads
    return heads


def _parted(tape: Tape, spec: ModelSpec, path: str, projected: Value, heads: Amount) -> Value:
    """Clipped, and parted into heads."""
    if spec.attention.clip is not None:
        projected = clamped(tape, path, projected)
    return projected.parted(heads, spec.head_size)


def _normed(tape: Tape, spec: ModelSpec, path: str, heads: Value) -> Value:
    """Normalized over each head, or over all of a token's heads."""
    kind = spec.attention.query_key_norm
    if kind == "none":
        return heads
    if kind == "head":
        return norm(tape, f"{path}_norm", heads, weighted(spec.norm))
    flat = tape.merge("", path, heads, (1, 1, 2))
    return norm(tape, f"{path}_norm", flat, weighted(spec.norm)).parted(*heads.shape[-2:])


def _joined(tape: Tape, path: str, whole: Value, part: Value) -> Value:
    """Two parts of each head side by side: a copy as large as `whole`, in the wider of the two formats."""
    y = tape.make(f"{path}: joined", whole.shape, wider(whole, part))
    pieces = ops.copy(y.num_elements, element_bytes=y.element_bytes, op="concatenate")
    return tape.op("", "", pieces, y, reads=(whole, part), backward=pieces)
