"""The core of attention, walked on the tape: scores, softmax, values, as torch's own operations run them."""

from __future__ import annotations

from typing import Literal

from torchledger import ops
from torchledger.formula import core_fused
from torchledger.formula.heads import Context, Heads
from torchledger.formula.kernels import Kernels
from torchledger.formula.pointwise import dropped, scaled, soft_capped, softmax
from torchledger.formula.tape import Tape
from torchledger.formula.value import ELEMENT_BYTES, Value
from torchledger.ledger import Amount
from torchledger.ops import Piece
from torchledger.spec import ModelSpec, Recipe


def core(tape: Tape, spec: ModelSpec, recipe: Recipe, heads: Heads, context: Context) -> Value:
    """Each query over the keys it sees: -> [B, T, H·value size]. With selective recompute only its input is kept."""
    with tape.inside("core"):
        if recipe.recompute != "selective" or tape.kernels.selective == "operations":
            return _core(tape, spec, recipe, heads, context)
        with tape.checkpoint(heads if context.mask is None else (*heads, context.mask)):
            return _core(tape, spec, recipe, heads, context)


def _core(tape: Tape, spec: ModelSpec, recipe: Recipe, heads: Heads, context: Context) -> Value:
    kernel = kernel_of(spec, recipe, tape.kernels)
    if kernel == "scores":
        return core_fused.with_scores(tape, spec, heads, context)
    if kernel == "flash":
        return core_fused.flash(tape, spec, heads, context)
    if kernel == "math":
        return _math(tape, spec, heads, context)
    if tape.kernels.device == "cuda":
        number_format = tape.matmul_format(heads.query)
        if core_fused.is_taken_by_cuda(spec, context, number_format):
            return core_fused.of_cuda(tape, spec, operands(tape, spec, heads, number_format), context)
        return _unfused(tape, spec, heads, context)
    return _fused(tape, spec, heads, context) if has_fused_kernel(spec) else _unfused(tape, spec, heads, context)


def kernel_of(spec: ModelSpec, recipe: Recipe, kernels: Kernels) -> Literal["math", "torch", "scores", "flash"]:
    """How attention runs: operation by operation, as torch's own kernel, with Megatron's fused softmax, or as flash.

    Asking for `math` of a set with flash takes it away: what is left is Megatron's softmax, or single operations.
    """
    if kernels.attention == "scores" or (kernels.chains == "fused" and recipe.attention == "math"):
        return "scores"
    if kernels.attention == "flash" and recipe.attention == "fused":
        return "flash"
    return "math" if recipe.attention == "math" or spec.attention.logit_soft_cap is not None else "torch"


def has_fused_kernel(spec: ModelSpec) -> bool:
    """Whether the CPU's fused kernel takes it: no dropout, values as wide as keys.

    Source: `use_flash_attention_cpp` in aten/src/ATen/native/transformers/sdp_utils_cpp.cpp.
    """
    return not spec.attention.dropout > 0 and spec.value_head_size == spec.head_size


def why_scores_are_kept(spec: ModelSpec) -> str:
    """What keeps a model that asks for fused attention from it; empty where the fused kernel takes it.

    >>> from torchledger.spec import AttentionSpec, MlpSpec
    >>> why_scores_are_kept(ModelSpec("tiny", 100, 64, 2, 32, AttentionSpec(4, logit_soft_cap=50.0), MlpSpec(64)))
    'the scores have a soft-cap'
    """
    if spec.attention.logit_soft_cap is not None:
        return "the scores have a soft-cap"
    if has_fused_kernel(spec):
        return ""
    return "attention has dropout" if spec.attention.dropout > 0 else "values are not as wide as keys"


def _math(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """bmm, [soft-cap], + mask in place, softmax, [dropout], bmm: scores of the whole square are written and kept."""
    groups = _groups(spec)
    q = scaled(tape, "", _by_head(tape, "query", heads.query, 1), "query · scale")
    k, v = _by_head(tape, "key", heads.key, groups), _by_head(tape, "value", heads.value, groups)
    return _by_token(tape, _attended(tape, spec, Heads(q, k, v), context, tape.matmul_format(q)), heads.query)


def _unfused(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """What torch's kernel falls back to: the same in FP32, with √scale on queries and keys each.

    Source: `_scaled_dot_product_attention_math` in aten/src/ATen/native/transformers/attention.cpp.
    """
    groups, number_format = _groups(spec), tape.matmul_format(heads.value)
    q, k, v = (
        _in_fp32(tape, name, x, number_format, times)
        for name, x, times in zip(("query", "key", "value"), heads, (1, groups, groups), strict=True)
    )
    # `mul.Scalar` in C++: no number is kept
    q = scaled(tape, "", q, "query · √scale", keeps_number=False)
    k = scaled(tape, "", k, "key · √scale", keeps_number=False)
    mixed = _attended(tape, spec, Heads(q, k, v), context, "fp32")
    return _by_token(tape, tape.cast("", "mixed values", mixed, number_format), heads.query)


def _in_fp32(tape: Tape, name: str, x: Value, number_format: str, groups: Amount) -> Value:
    """[B, T, K, d] -> [B·K·groups, T, d], rounded to a format first. Heads are repeated before they are cast.

    So a cast writes every head, also where repeating one head of one sequence was a view.
    """
    if groups == 1:
        return _by_head(tape, name, tape.cast("", f"{name} in FP32", tape.cast("", name, x, number_format), "fp32"), 1)
    heads = tape.cast("", name, _repeated(tape, name, x, groups), number_format)
    return tape.merge("", name, tape.cast("", f"{name} in FP32", heads, "fp32"), (2, 1, 1))


def _attended(tape: Tape, spec: ModelSpec, heads: Heads, context: Context, number_format: str) -> Value:
    """From queries, keys and values [B·H, T, ...], the queries scaled: -> [B·H, T, value size]."""
    batch, T, _ = heads.query.shape
    sizes = (batch, T, T, spec.head_size, spec.value_head_size)
    size = ELEMENT_BYTES[number_format]
    score, value = ops.attention_math(*sizes, pairs=context.pairs, element_bytes=size)
    d_weights, d_value, d_query, d_key = ops.attention_math_backward(*sizes, pairs=context.pairs, element_bytes=size)
    operands = (heads.query, heads.key)
    scores = product(tape, operands, score, (d_query, d_key), tape.make("scores", (batch, T, T), number_format))
    if spec.attention.logit_soft_cap is not None:
        scores = soft_capped(tape, "", scores, "scores")
    tape.run("", ops.pointwise("add", scores.num_elements, element_bytes=size), number_format)
    weights = softmax(tape, "", scores, "attention weights")
    if spec.attention.dropout > 0:
        weights = dropped(tape, "", weights, "attention weights")
    mixed = tape.make("mixed values", (batch, T, spec.value_head_size), number_format)
    return product(tape, (weights, heads.value), value, (d_weights, d_value), mixed)


def product(tape: Tape, operands: tuple[Value, Value], forward: Piece, backward: tuple[Piece, ...], y: Value) -> Value:
    """One of the two batched products, in the format of its result y. Keeps each operand for the other's gradient."""
    cast = tuple(tape.cast("", f"{forward.op} operand", x, y.number_format) for x in operands)
    number_format = tape.product_format(y.number_format)
    flows = [x.requires_grad for x in cast]
    keeps = tuple(x for x, other in zip(cast, reversed(flows), strict=True) if other)
    backward = tuple(piece for piece, flow in zip(backward, flows, strict=True) if flow)
    return tape.op("", "bmm", (forward,), y, reads=cast, backward=backward, keeps=keeps, number_format=number_format)


def _fused(tape: Tape, spec: ModelSpec, heads: Heads, context: Context) -> Value:
    """The CPU's kernel: keeps queries, keys and values as it reads them, its output and a logsumexp a row."""
    B, T, H, d = heads.query.shape
    number_format = tape.matmul_format(heads.query)
    q, k, v = operands(tape, spec, heads, number_format)
    y = tape.make("mixed values", (B, T, H, d), number_format)
    logsumexp = tape.make("logsumexp", (B, H, T), "fp32")
    sizes, size = (B * H, T, T, d, d), y.element_bytes
    y = tape.op(
        "",
        "attention",
        ops.attention_fused(*sizes, pairs=context.pairs, element_bytes=size),
        y,
        logsumexp,
        reads=(q, k, v),
        backward=ops.needed_only(
            ops.attention_fused_backward(*sizes, pairs=context.pairs, element_bytes=size),
            (q.requires_grad, k.requires_grad, v.requires_grad),
            d,
            d,
        ),
        keeps=(q, k, v, *(() if context.mask is None else (context.mask,))),
        keeps_made=(y, logsumexp),
    )
    return tape.merge("", "mixed values", y, (1, 1, 2))


def operands(tape: Tape, spec: ModelSpec, heads: Heads, number_format: str) -> Heads:
    """Queries, keys and values [B, heads, T, size] as torch's kernels read them, key-value heads repeated."""
    groups = _groups(spec)
    return Heads(
        *(
            tape.cast("", f"{name} read", _repeated(tape, name, x, times), number_format)
            for name, x, times in zip(("query", "key", "value"), heads, (1, groups, groups), strict=True)
        )
    )


def _by_head(tape: Tape, name: str, x: Value, groups: Amount) -> Value:
    """[B, T, K, d] -> [B·K·groups, T, d], every key-value head repeated for its group of query heads."""
    return tape.merge("", name, x.permuted(0, 2, 1, 3).repeated(2, groups), (3, 1, 1))


def _repeated(tape: Tape, name: str, x: Value, groups: Amount) -> Value:
    """[B, T, K, d] -> [B, K·groups, T, d]."""
    return tape.merge("", name, x.permuted(0, 2, 1, 3).repeated(2, groups), (1, 2, 1, 1))


def _by_token(tape: Tape, mixed: Value, query: Value) -> Value:
    """[B·H, T, d] -> [B, T, H·d], B, T and H those of `query`."""
    B, T, H, _ = query.shape
    d = mixed.shape[2]
    view = Value((B, H, T, d), (H * T * d, T * d, d, 1), mixed.number_format, mixed.storage, mixed.requires_grad)
    return tape.merge("", "mixed values", view.permuted(0, 2, 1, 3), (1, 1, 2))


def _groups(spec: ModelSpec) -> Amount:
    """Query heads to one key-value head."""
    heads: Amount = spec.attention.num_heads
    key_value_heads: Amount = spec.num_key_value_heads
    if heads == key_value_heads:
        return 1
    whole = isinstance(heads, int) and isinstance(key_value_heads, int)
    return heads // key_value_heads if whole else heads / key_value_heads
