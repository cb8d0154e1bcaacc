"""Prices of matrix products and attention: torch's arguments -> sizes -> `ops`."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.signature import TensorMeta


@price_of("mm", "bmm", "mv", "dot", "vdot")
def product(seen: Seen) -> tuple[Piece, ...]:
    """[b, m, k] @ [b, k, n]."""
    left, right = _operands(seen)
    return _product(left.shape, right.shape, left.dtype.itemsize)


@price_of("addmm", "baddbmm", "addmv")
def product_with_bias(seen: Seen) -> tuple[Piece, ...]:
    """A product, and one add an element of the result."""
    left, right = _operands(seen)
    pieces = _product(left.shape, right.shape, left.dtype.itemsize)
    result = seen.results[0].shape
    return (*pieces, *ops.bias_add(size_of(result[:-1]), result[-1], element_bytes=left.dtype.itemsize))


@price_of("linear")
def linear(seen: Seen) -> tuple[Piece, ...]:
    """A product x Wᵀ + b as one operation (inference mode keeps it whole)."""
    x, weight = seen.tensor("input"), seen.tensor("weight")
    outputs = weight.num_elements // weight.shape[-1]
    return ops.linear(
        size_of(x.shape[:-1]),
        x.shape[-1],
        outputs,
        bias=seen.optional("bias") is not None,
        element_bytes=x.dtype.itemsize,
    )


@price_of(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
def attention(seen: Seen) -> tuple[Piece, ...]:
    """A fused attention kernel: q, k, v are [batch, heads, tokens, head size]."""
    return _masked(seen, ops.attention_fused(**_attention_sizes(seen), logsumexp_bytes=4))


@price_of(
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
)
def attention_backward(seen: Seen) -> tuple[Piece, ...]:
    """The backward of a fused attention kernel."""
    return _masked(seen, ops.attention_fused_backward(**_attention_sizes(seen), logsumexp_bytes=4))


def _masked(seen: Seen, pieces: tuple[Piece, ...]) -> tuple[Piece, ...]:
    """Under a mask tensor the exact FLOPs are unknown: which pairs it lets through is data."""
    if seen.optional("attn_mask") is None and seen.optional("attn_bias") is None:
        return pieces
    first, *rest = pieces
    return (replace(first, work=replace(first.work, flops_exact=None)), *rest)


def _operands(seen: Seen) -> tuple[TensorMeta, TensorMeta]:
    left = next(name for name in ("mat1", "batch1", "mat", "self") if seen.optional(name) is not None)
    right = next(
        name for name in ("mat2", "batch2", "vec2", "vec", "tensor", "other") if seen.optional(name) is not None
    )
    return seen.tensor(left), seen.tensor(right)


def _product(left: tuple[int, ...], right: tuple[int, ...], element_bytes: int) -> tuple[Piece, ...]:
    batch, m, k = (1,) * (3 - len(left)) + left
    n = right[-1] if len(right) > 1 else 1
    return ops.matmul(batch, m, n, k, element_bytes=element_bytes)


def _attention_sizes(seen: Seen) -> dict[str, int]:
    query, key, value = seen.tensor("query"), seen.tensor("key"), seen.tensor("value")
    batch, heads, queries, head_size = query.shape
    keys = key.shape[2]
    pairs = queries * keys
    if seen.arguments.get("is_causal"):
        # The mask's corner is at the top left (torch.nn.functional.scaled_dot_product_attention): query i sees keys
        # 0 to i, and queries beyond the last key see all of them.
        diagonal = min(queries, keys)
        pairs = ops.causal_pairs(diagonal) + (queries - diagonal) * keys
    return {
        "batch": batch * heads,
        "queries": queries,
        "keys": keys,
        "head_size": head_size,
        "value_head_size": value.shape[3],
        "key_value_batch": batch * key.shape[1],
        "pairs": pairs,
        "element_bytes": query.dtype.itemsize,
    }
