"""Prices of fused attention, whichever kernel runs it, and of torch's fast paths that hold one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from torchledger import ops
from torchledger.ledger import Amount
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of

#: Kernels that take [batch, heads, tokens, head size].
_BY_HEADS = (
    "_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable", "_cudnn_attention",
)  # fmt: skip
#: Kernels that take [batch, tokens, heads, head size], or [tokens, heads, head size] of sequences end to end.
_BY_TOKENS = ("_flash_attention", "_efficient_attention")
#: torch's own custom operation of sequences end to end (torch.nn.attention.varlen).
_VARLEN = "torch_attn::_varlen_attn"
#: `custom_mask_type` of the memory-efficient kernel (aten/src/ATen/native/transformers/cuda/mem_eff_attention).
_NO_MASK, _CAUSAL_TOP_LEFT, _CAUSAL_BOTTOM_RIGHT = 0, 1, 2


@price_of(*_BY_HEADS[:-1], "_cudnn_attention_forward", *(f"{name}_forward" for name in _BY_TOKENS))
@price_of(_VARLEN, f"{_VARLEN}_out")
def attention(seen: Seen) -> tuple[Piece, ...]:
    """A fused attention kernel."""
    sizes = _sizes(seen)
    return _masked(seen, _as_run(seen, sizes, ops.attention_fused), sizes) + _dropped(seen, sizes)


@price_of(*(f"{name}_backward" for name in (*_BY_HEADS, *_BY_TOKENS)), f"{_VARLEN}_backward")
def attention_backward(seen: Seen) -> tuple[Piece, ...]:
    """The backward of a fused attention kernel, which makes all gradients; model FLOPs are of those that are needed."""
    sizes = _sizes(seen)
    pieces = _as_run(seen, sizes, ops.attention_fused_backward)
    if seen.needed is not None:
        of_query, of_key, of_value = (seen.is_needed(index) for index in range(3))
        pieces = ops.needed_only(pieces, (of_query, of_key, of_value), sizes.head_size, sizes.value_head_size)
    return _masked(seen, pieces, sizes) + _dropped(seen, sizes)


@price_of("_scaled_dot_product_attention_math_for_mps", "_triton_scaled_dot_attention")
def attention_whole(seen: Seen) -> tuple[Piece, ...]:
    """Attention as one operation that keeps nothing for a backward pass."""
    names = ("q", "k", "v") if seen.op.startswith("_triton") else ("query", "key", "value")
    query, key, value = (seen.tensor(name) for name in names)
    batch = size_of(query.shape[:-2])
    sizes = _Sizes(batch, size_of(key.shape[:-2]), query.shape[-2], key.shape[-2], query.shape[-1], value.shape[-1])
    sizes = replace(sizes, pairs=_causal(sizes) if seen.arguments.get("is_causal") else None)
    pieces = ops.attention_fused(**sizes.named, logsumexp_bytes=0)
    return _masked(seen, pieces, sizes)


@price_of("_native_multi_head_attention", "_triton_multi_head_attention")
def multi_head_attention(seen: Seen) -> tuple[Piece, ...]:
    """The fast path of `nn.MultiheadAttention`: projections of q, k and v, attention, and one more projection."""
    query, key, value = (seen.tensor(name) for name in ("query", "key", "value"))
    width, heads = seen.arguments["embed_dim"], seen.arguments["num_head"]
    pieces = [
        piece for x in (query, key, value) for piece in ops.linear(size_of(x.shape[:-1]), x.shape[-1], width, bias=True)
    ]
    pieces += _self_attention(seen, size_of(query.shape[:-2]), query.shape[-2], key.shape[-2], heads, width)
    return (*pieces, *ops.linear(size_of(query.shape[:-1]), width, width, bias=True))


@price_of("_transformer_encoder_layer_fwd")
def encoder_layer(seen: Seen) -> tuple[Piece, ...]:
    """The fast path of `nn.TransformerEncoderLayer`: attention, two linear layers, two norms, two residual adds."""
    x, width = seen.tensor("src"), seen.arguments["embed_dim"]
    tokens, hidden = size_of(x.shape[:-1]), seen.tensor("ffn_weight_1").shape[0]
    pieces = [*ops.linear(tokens, width, 3 * width, bias=True)]
    pieces += _self_attention(seen, size_of(x.shape[:-2]), x.shape[-2], x.shape[-2], seen.arguments["num_heads"], width)
    pieces += ops.linear(tokens, width, width, bias=True)
    pieces += ops.linear(tokens, width, hidden, bias=True)
    pieces += ops.pointwise("gelu" if seen.arguments["use_gelu"] else "relu", tokens * hidden)
    pieces += ops.linear(tokens, hidden, width, bias=True)
    for _ in range(2):
        pieces += (*ops.layer_norm(tokens, width), *ops.pointwise("add", tokens * width))
    return tuple(pieces)


@price_of("_nested_tensor_from_mask_left_aligned")
def is_left_aligned(seen: Seen) -> tuple[Piece, ...]:
    """Whether every row of a mask has its padding at the end: one compare an element."""
    return ops.pointwise("compare", seen.tensor("mask").num_elements)


@dataclass(frozen=True, slots=True)
class _Sizes:
    """Sizes of an attention; `batch` and `key_value_batch` have the heads in them."""

    batch: int
    key_value_batch: int
    queries: int
    keys: int
    head_size: int
    value_head_size: int
    pairs: Amount = None
    element_bytes: int = 4
    is_known: bool = True
    sequences: int = 0

    @property
    def named(self) -> dict[str, Amount]:
        """As `ops` takes them."""
        names = (
            "batch",
            "queries",
            "keys",
            "head_size",
            "value_head_size",
            "key_value_batch",
            "pairs",
            "element_bytes",
        )
        return {name: getattr(self, name) for name in names}


def _sizes(seen: Seen) -> _Sizes:
    query, key, value = seen.tensor("query"), seen.tensor("key"), seen.tensor("value")
    by_tokens = seen.op.startswith(_BY_TOKENS)
    size = query.dtype.itemsize
    if len(query.shape) == 3 or seen.optional("cu_seqlens_q") is not None:
        return _of_packed(seen)
    batch, heads, queries, head_size = query.shape
    key_heads, keys = key.shape[1:3]
    if by_tokens:
        batch, queries, heads, head_size = query.shape
        keys, key_heads = key.shape[1:3]
    head_size, value_size = _unpadded(seen, head_size), _unpadded(seen, value.shape[-1])
    sizes = _Sizes(batch * heads, batch * key_heads, queries, keys, head_size, value_size, element_bytes=size)
    return replace(sizes, pairs=_visible(seen, sizes))


_ENDS = ("cum_seq_q", "cu_seqlens_q", "cu_seq_q", "cum_seq_k", "cu_seqlens_k", "cu_seq_k")
_PADDED = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_flash_attention_backward"}


def _unpadded(seen: Seen, head_size: int) -> int:
    """The model's head size, where torch padded heads to a multiple of 8 for the flash kernel of CUDA.

    The kernel is told the scale of the head before that, 1 / √size (aten/.../transformers/attention.cpp).
    """
    scale = seen.arguments.get("scale")
    # Only CUDA's kernel is padded; a scale of 1 is one that the model has applied itself, not that of a head of size 1.
    if seen.op not in _PADDED or not isinstance(scale, float) or not 0 < scale < 1:
        return head_size
    size = round(scale**-2)
    is_its_scale = abs(size**-0.5 - scale) < 1e-12 * scale
    return size if is_its_scale and head_size - 8 < size < head_size and head_size % 8 == 0 else head_size


def _as_run(seen: Seen, sizes: _Sizes, kernel: Callable[..., tuple[Piece, ...]]) -> tuple[Piece, ...]:
    """What a kernel costs: it runs and reads heads as they were padded, the model's FLOPs are of its own heads."""
    pieces = kernel(**sizes.named, logsumexp_bytes=4)
    heads, value_heads = (seen.tensor(name).shape[-1] for name in ("query", "value"))
    if (heads, value_heads) == (sizes.head_size, sizes.value_head_size):
        return pieces
    padded = replace(sizes, head_size=heads, value_head_size=value_heads)
    first, model = kernel(**padded.named, logsumexp_bytes=4)[0], pieces[0].work
    work = replace(first.work, flops_full=model.flops_full, flops_exact=model.flops_exact)
    return (replace(first, work=work), *pieces[1:])


def _of_packed(seen: Seen) -> _Sizes:
    """Sequences end to end: how long each one is is data, so they are taken to be equally long."""
    query, key, value = (seen.tensor(name).shape[-3:] for name in ("query", "key", "value"))
    ends = next(meta for name in _ENDS if (meta := seen.optional(name)) is not None)
    sequences = max(ends.shape[0] - 1, 1)
    queries, keys = query[0] // sequences, key[0] // sequences
    longest = next((n for name in ("max_q", "max_seqlen_q") if isinstance(n := seen.arguments.get(name), int)), queries)
    sizes = _Sizes(
        sequences * query[1], sequences * key[1], queries, keys, query[2], value[2],
        element_bytes=seen.tensor("query").dtype.itemsize, is_known=longest * sequences == query[0],
        sequences=sequences,
    )  # fmt: skip
    if not sizes.is_known:
        seen.assumptions.append(
            "attention over packed sequences: they are taken to be equally long (their lengths are data); the longer "
            "they differ, the more it costs"
        )
    return replace(sizes, pairs=_visible(seen, sizes))


def _visible(seen: Seen, sizes: _Sizes) -> Amount:
    """Query-key pairs that causality and a window let through, `None` for all."""
    left, right = _window(seen)
    if left < 0 and right < 0:
        return None
    # torch.nn.functional's mask has its corner at the top left; FlashAttention's own at the bottom right.
    bottom_right = seen.op.startswith(("_flash_attention", "_varlen_attn"))
    bottom_right = bottom_right or seen.arguments.get("custom_mask_type") == _CAUSAL_BOTTOM_RIGHT
    return band(sizes.queries, sizes.keys, sizes.keys - sizes.queries if bottom_right else 0, left, right)


def _window(seen: Seen) -> tuple[int, int]:
    """How many keys before and after its own a query sees, negative for all."""
    causal = bool(seen.arguments.get("is_causal")) or seen.arguments.get("custom_mask_type", _NO_MASK) != _NO_MASK
    left, right = seen.arguments.get("window_size_left"), seen.arguments.get("window_size_right")
    window = seen.arguments.get("window_size")
    if isinstance(window, tuple):  # the custom operation's list: before, after
        left, right = window[1:]
    elif window:  # the memory-efficient kernel's: so many keys, the query's own among them
        left = window - 1
    left = -1 if left is None else left
    return left, 0 if causal else -1 if right is None else right


def band(queries: int, keys: int, offset: int, left: int, right: int) -> int:
    """Pairs of a band: query i sees keys i + offset - left to i + offset + right, a negative width is none."""
    pairs = 0
    for query in range(queries):
        first = 0 if left < 0 else max(query + offset - left, 0)
        last = keys - 1 if right < 0 else min(query + offset + right, keys - 1)
        pairs += max(last - first + 1, 0)
    return pairs


def _causal(sizes: _Sizes) -> int:
    return band(sizes.queries, sizes.keys, 0, -1, 0)


def _masked(seen: Seen, pieces: tuple[Piece, ...], sizes: _Sizes) -> tuple[Piece, ...]:
    """Under a mask tensor the exact FLOPs are unknown: which pairs it lets through is data."""
    masks = ("attn_mask", "attn_bias", "bias", "seqused_k", "seqlen_k", "block_table")
    first, *rest = pieces
    if sizes.sequences:  # what lets `document_lengths` count them one by one
        band_of = (("sequences", sizes.sequences), *zip(("left", "right"), _window(seen), strict=True))
        first = replace(first, shape=(*first.shape, *band_of))
    if sizes.is_known and all(seen.optional(name) is None for name in masks):
        return (first, *rest)
    return (replace(first, work=replace(first.work, flops_exact=None)), *rest)


def _dropped(seen: Seen, sizes: _Sizes) -> tuple[Piece, ...]:
    """Dropout of the attention weights inside the kernel."""
    if not seen.arguments.get("dropout_p"):
        return ()
    pairs = sizes.batch * sizes.queries * sizes.keys
    return ops.dropout(pairs, element_bytes=0, mask_element_bytes=0)


def _self_attention(  # noqa: PLR0917  # what the fast paths know
    seen: Seen, batch: int, queries: int, keys: int, heads: int, width: int
) -> list[Piece]:
    """Attention as the fast paths run it: two batched products and a masked softmax between them."""
    products = ops.attention_math(batch * heads, queries, keys, width // heads, width // heads)
    if seen.optional("mask") is not None:
        products = tuple(replace(piece, work=replace(piece.work, flops_exact=None)) for piece in products)
    scaled = ops.pointwise("scale", batch * queries * width, element_bytes=0)
    return [*scaled, *products, *ops.softmax(batch * heads * queries, keys, op="attention_softmax")]
