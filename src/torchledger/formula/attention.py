"""The attention of a layer, walked on the tape: projections, norms of queries and keys, positions."""

from __future__ import annotations

from torchledger import ops
from torchledger.formula.core import Context, Heads, core
from torchledger.formula.dense import linear, norm, weighted
from torchledger.formula.pointwise import clamped
from torchledger.formula.tape import Tape, Value
from torchledger.ledger import Amount
from torchledger.spec import ModelSpec, Recipe


def attention(tape: Tape, spec: ModelSpec, recipe: Recipe, x: Value, context: Context) -> Value:
    """MHA, GQA or MQA: x [B, T, D] -> [B, T, D]."""
    part, d = spec.attention, spec.head_size
    H, K = part.num_heads, spec.num_key_value_heads
    tape.fan_out("", x, 3)
    query = _heads(tape, spec, "query", linear(tape, "query", x, H * d, bias=part.query_bias), H)
    key = _heads(tape, spec, "key", linear(tape, "key", x, K * d, bias=part.key_bias), K)
    value = _heads(tape, spec, "value", linear(tape, "value", x, K * d, bias=part.value_bias), K)
    query, key = rotated(tape, spec, "query", query), rotated(tape, spec, "key", key)
    mixed = core(tape, spec, recipe, Heads(query, key, value), context)
    return linear(tape, "output", mixed, spec.hidden_size, bias=part.output_bias)


def latent_attention(tape: Tape, spec: ModelSpec, recipe: Recipe, x: Value, context: Context) -> Value:
    """MLA (DeepSeek-V2, arXiv:2405.04434, equations 37 to 47): keys and values from one small vector a token."""
    part, H = spec.attention, spec.attention.num_heads
    tape.fan_out("", x, 2)
    plain, turned, value_size = part.plain_head_size, part.rotary_head_size, part.value_head_size
    if part.query_rank == 0:
        query = linear(tape, "query", x, H * spec.head_size, bias=part.query_bias)
    else:
        down = linear(tape, "query_down", x, part.query_rank, bias=part.query_bias)
        query = linear(tape, "query_up", norm(tape, "query_down_norm", down, weighted(spec.norm)), H * spec.head_size)
    query = query.parted(H, spec.head_size)
    down = linear(tape, "key_value_down", x, part.key_value_rank + turned, bias=part.key_bias)
    latent = norm(tape, "key_value_down_norm", down.sliced(part.key_value_rank), weighted(spec.norm))
    expanded = linear(tape, "key_value_up", latent, H * (plain + value_size)).parted(H, plain + value_size)
    turned_query = rotated(tape, spec, "query", query.sliced(turned))
    turned_key = rotated(tape, spec, "key", down.sliced(turned).parted(1, turned))
    query = _joined(tape, "query", query, turned_query)
    key = _joined(tape, "key", expanded.sliced(plain + turned), turned_key)
    mixed = core(tape, spec, recipe, Heads(query, key, expanded.sliced(value_size)), context)
    return linear(tape, "output", mixed, spec.hidden_size, bias=part.output_bias)


def rotated(tape: Tape, spec: ModelSpec, path: str, x: Value) -> Value:
    """The first `rotary_size` dims of each head turned, in FP32. Keeps the tables, which are there anyway."""
    size = spec.rotary_size
    if size == 0:
        return x
    tokens, heads = x.shape[0] * x.shape[1], x.shape[2]
    part = tape.cast("", f"{path}: before rotation", x.sliced(size), "fp32")
    y = tape.make(f"{path}: rotated", part.shape, "fp32")
    tape.run("", ops.rotary(tokens, heads, size), "fp32", y)
    tape.then("", ops.rotary(tokens, heads, size), "fp32")
    y = tape.cast("", f"{path}: rotated", y, x.number_format)
    return y if x.shape[-1] == size else _joined(tape, path, x, y)


def _heads(tape: Tape, spec: ModelSpec, path: str, projected: Value, heads: Amount) -> Value:
    """Clip, normalize over the whole projection or over each head, and part into heads."""
    kind = spec.attention.query_key_norm if path != "value" else "none"
    if spec.attention.clip is not None:
        projected = clamped(tape, path, projected)
    if kind == "full":
        projected = norm(tape, f"{path}_norm", projected, weighted(spec.norm))
    parted = projected.parted(heads, spec.head_size)
    return norm(tape, f"{path}_norm", parted, weighted(spec.norm)) if kind == "head" else parted


def _joined(tape: Tape, path: str, whole: Value, part: Value) -> Value:
    """Two parts of each head side by side: a copy as large as `whole`, in the wider of the two formats."""
    number_format = "fp32" if "fp32" in {whole.number_format, part.number_format} else part.number_format
    y = tape.make(f"{path}: joined", whole.shape, number_format)
    pieces = ops.copy(y.num_elements, element_bytes=y.element_bytes, op="concatenate")
    tape.run("", pieces, number_format, y)
    tape.then("", pieces, number_format)
    return y
