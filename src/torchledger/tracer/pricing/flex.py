"""The price of flex_attention: its block mask's own function says which pairs it lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention.flex_attention import noop_mask

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.signature import Signature, TensorMeta

#: Pairs that a mask is evaluated for at a time.
_AT_ONCE = 1 << 24
_MASK_FIELDS = 13


def flex_attention(signature: Signature, *, backward: bool, assumptions: list[str]) -> tuple[Piece, ...]:
    """Attention [batch, heads, tokens, head size] under a block mask.

    Full counts take every pair, exact ones those that the mask's function lets through, executed ones every pair of a
    block that has one. Where the function needs data that a traced step does not have, the last two are unknown.

    Args:
        signature: the call; the mask is its one argument that ends in a function of positions.
        backward: whether it is the backward operation.
        assumptions: what is assumed is added to it.
    """
    query, key, value = signature.args[:3]
    batch, heads, queries, head_size = query.shape
    keys = key.shape[2]
    rule = ops.attention_fused_backward if backward else ops.attention_fused
    pieces = rule(
        batch * heads, queries, keys, head_size, value.shape[3], key_value_batch=key.shape[0] * key.shape[1],
        element_bytes=query.dtype.itemsize,
    )  # fmt: skip
    seen = _seen(signature, queries, keys)
    if seen is not None and seen[0] == queries * keys:
        return pieces
    first, *rest = pieces
    work = first.work
    if seen is None:
        assumptions.append("flex_attention under a mask that depends on data: counted in full, exact FLOPs unknown")
        return (replace(first, work=replace(work, flops_exact=None)), *rest)
    pairs, block_pairs = seen
    exact = work.flops_full * pairs // (queries * keys)
    executed = work.flops_executed * block_pairs // (queries * keys)
    return (replace(first, work=replace(work, flops_exact=exact, flops_executed=executed)), *rest)


def _seen(signature: Signature, queries: int, keys: int) -> tuple[int, int] | None:
    """Pairs that the mask lets through, and pairs of the blocks that have one, per head; `None` where data decides."""
    mask = next((value for value in signature.args if isinstance(value, tuple) and _is_mask(value)), None)
    if mask is None:
        return queries * keys, queries * keys
    fields = mask[1:]
    function, heads, blocks = fields[-1], fields[2].shape[:2], fields[-3:-1]
    if function is noop_mask:
        return queries * keys, queries * keys
    try:
        return _count(function, heads, (queries, keys), blocks)
    except (RuntimeError, TypeError, ValueError, AssertionError):
        return None


def _is_mask(value: tuple[Any, ...]) -> bool:
    return len(value) >= _MASK_FIELDS and callable(value[-1]) and isinstance(value[3], TensorMeta)


def _count(
    function: Callable[..., torch.Tensor], heads: tuple[int, ...], sizes: tuple[int, int], blocks: tuple[int, int]
) -> tuple[int, int]:
    """Mean over the mask's batches and heads of pairs seen and of pairs in blocks that are not empty."""
    (queries, keys), (rows, columns) = sizes, blocks
    step = max(rows, _AT_ONCE // keys // rows * rows)
    pairs = block_pairs = 0
    for batch in range(heads[0]):
        for head in range(heads[1]):
            for first in range(0, queries, step):
                q = torch.arange(first, min(first + step, queries))[:, None]
                lets = function(torch.tensor(batch), torch.tensor(head), q, torch.arange(keys)[None, :])
                lets = lets.expand(q.shape[0], keys)
                pairs += int(lets.sum())
                padded = torch.nn.functional.pad(lets, (0, -keys % columns, 0, -q.shape[0] % rows))
                filled = padded.unflatten(0, (-1, rows)).unflatten(2, (-1, columns)).any(3).any(1)  # type: ignore[no-untyped-call]  # torch has no types here
                block_pairs += int(filled.sum()) * rows * columns
    count = heads[0] * heads[1]
    return pairs // count, min(block_pairs // count, queries * keys)
