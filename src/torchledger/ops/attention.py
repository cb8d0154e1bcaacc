"""Scaled dot-product attention: its matrix products one by one, and as one fused kernel.

Symbols as in Vaswani et al. (arXiv:1706.03762) and FlashAttention-2 (arXiv:2307.08691): S = QKᵀ, P = softmax(S),
O = PV. Full counts take the whole square of queries x keys, exact ones the pairs that the mask lets through.
"""

from __future__ import annotations

from dataclasses import replace

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.reduction import softmax, softmax_backward
from torchledger.ops.registry import rule


def causal_pairs(queries: Amount, window: Amount = 0) -> Amount:
    """Query-key pairs that a causal mask lets through: sum over i of min(i + 1, window); window 0 is no window.

    >>> causal_pairs(4), causal_pairs(4, window=2), causal_pairs(4, window=9)  # 1+2+3+4, 1+2+2+2, 1+2+3+4
    (10, 7, 10)
    """
    if window == 0:
        return _half(queries * (queries + 1))
    seen = min(queries, window)
    return _half(seen * (seen + 1)) + (queries - seen) * seen


def _half(even: Amount) -> Amount:
    """Half of an even amount, exactly: an integer stays one, a symbol stays a polynomial."""
    return even // 2 if isinstance(even, int) else even / 2


@rule
def attention_product(
    op: str,
    batch: Amount,
    m: Amount,
    n: Amount,
    k: Amount,
    *,
    contractions: Amount,
    exact_contractions: Amount,
    element_bytes: Amount = 4,
    backward: bool = False,
) -> tuple[Piece, ...]:
    """One of attention's batched products [m, k] @ [k, n], whose exact FLOPs count visible pairs only.

    Args:
        op: its name.
        batch: batch x heads.
        m: rows of the result.
        n: columns of the result.
        k: the contracted index.
        contractions: multiply-adds of one of the batch in full.
        exact_contractions: those on visible pairs.
        element_bytes: bytes of an element.
        backward: whether it makes a gradient.

    >>> attention_product("attention_scores", 2, 4, 4, 8, contractions=128, exact_contractions=80)[0].work.flops_exact
    320
    """
    full = 2 * batch * contractions
    work = Work(
        flops_full=full,
        flops_exact=2 * batch * exact_contractions,
        flops_executed=full,
        bytes_read=element_bytes * batch * (m * k + k * n),
        bytes_written=element_bytes * batch * m * n,
    )
    shape = (("b", batch), ("m", m), ("n", n), ("k", k))
    return (Piece(op, "attention", work, shape, "input" if backward else "none"),)


@rule
def attention_math(
    batch: Amount,
    queries: Amount,
    keys: Amount,
    head_size: Amount,
    value_head_size: Amount,
    *,
    pairs: Amount = None,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """The two products of attention that writes its scores: S = QKᵀ and O = PV, 2·queries·keys·(head sizes) a head.

    Softmax, scale and mask are operations of their own here.

    Args:
        batch: batch x query heads.
        queries: query positions.
        keys: key positions.
        head_size: width of a query and key head.
        value_head_size: width of a value head.
        pairs: visible pairs; nothing means all.
        element_bytes: bytes of an element.

    >>> [piece.work.flops_full for piece in attention_math(2, 4, 4, 8, 8)]  # 2·2·4·4·8 each
    [512, 512]
    """
    seen = queries * keys if pairs is None else pairs
    scores = attention_product(
        "attention_scores",
        batch,
        queries,
        keys,
        head_size,
        contractions=queries * keys * head_size,
        exact_contractions=seen * head_size,
        element_bytes=element_bytes,
    )
    values = attention_product(
        "attention_values",
        batch,
        queries,
        value_head_size,
        keys,
        contractions=queries * keys * value_head_size,
        exact_contractions=seen * value_head_size,
        element_bytes=element_bytes,
    )
    return (*scores, *values)


@rule
def attention_math_backward(
    batch: Amount,
    queries: Amount,
    keys: Amount,
    head_size: Amount,
    value_head_size: Amount,
    *,
    pairs: Amount = None,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """The four products dP = dO Vᵀ, dV = Pᵀ dO, dQ = dS K, dK = dSᵀ Q: twice the forward FLOPs.

    >>> sum(piece.work.flops_full for piece in attention_math_backward(2, 4, 4, 8, 8))  # 2·1024
    2048
    """
    seen = queries * keys if pairs is None else pairs
    products = (
        ("attention_weights_gradient", queries, keys, value_head_size),
        ("attention_value_gradient", keys, value_head_size, queries),
        ("attention_query_gradient", queries, head_size, keys),
        ("attention_key_gradient", keys, head_size, queries),
    )
    widths = (value_head_size, value_head_size, head_size, head_size)
    return tuple(
        attention_product(
            op,
            batch,
            m,
            n,
            k,
            contractions=queries * keys * width,
            exact_contractions=seen * width,
            element_bytes=element_bytes,
            backward=True,
        )[0]
        for (op, m, n, k), width in zip(products, widths, strict=True)
    )


@rule
def attention_fused(
    batch: Amount,
    queries: Amount,
    keys: Amount,
    head_size: Amount,
    value_head_size: Amount,
    *,
    key_value_batch: Amount = None,
    pairs: Amount = None,
    executed_pairs: Amount = None,
    element_bytes: Amount = 4,
    logsumexp_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """One kernel that never writes the scores (FlashAttention-2, algorithm 1): Q, K, V in, O and logsumexp out.

    Args:
        batch: batch x query heads.
        queries: query positions.
        keys: key positions.
        head_size: width of a query and key head.
        value_head_size: width of a value head.
        key_value_batch: batch x key-value heads, where K and V are shared by heads; nothing means `batch`.
        pairs: visible pairs; nothing means all.
        executed_pairs: pairs the kernel runs, blocks it skips left out; nothing means all.
        element_bytes: bytes of an element of Q, K, V and O.
        logsumexp_bytes: bytes of one logsumexp, kept for the backward pass.

    >>> [(piece.kind, piece.work.flops_full) for piece in attention_fused(2, 4, 4, 8, 8)]  # 1024 as in `attention_math`
    [('attention', 1024), ('reduction', 80)]
    """
    widths = head_size + value_head_size
    key_values = batch if key_value_batch is None else key_value_batch
    full = queries * keys
    work = Work(
        flops_full=2 * batch * full * widths,
        flops_exact=2 * batch * (full if pairs is None else pairs) * widths,
        flops_executed=2 * batch * (full if executed_pairs is None else executed_pairs) * widths,
        bytes_read=element_bytes * (batch * queries * head_size + key_values * keys * widths),
        bytes_written=element_bytes * batch * queries * value_head_size + logsumexp_bytes * batch * queries,
    )
    shape = _fused_shape(batch, queries, keys, head_size, value_head_size)
    rows = softmax(batch * queries, keys, element_bytes=0, op="attention_softmax")
    return (Piece("attention", "attention", work, shape), *rows)


@rule
def attention_fused_backward(
    batch: Amount,
    queries: Amount,
    keys: Amount,
    head_size: Amount,
    value_head_size: Amount,
    *,
    key_value_batch: Amount = None,
    pairs: Amount = None,
    executed_pairs: Amount = None,
    element_bytes: Amount = 4,
    logsumexp_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """The backward kernel (FlashAttention-2, algorithm 2): the four products, and S = QKᵀ a second time.

    The fifth product is in `flops_executed` only: it is recomputation, which model FLOPs leave out. So is what makes
    P = exp(S - logsumexp) of it again, a difference a pair; its exponential is among the transcendentals.

    >>> piece, rows = attention_fused_backward(2, 4, 4, 8, 8)
    >>> piece.work.flops_full, piece.work.flops_executed  # 2·1024; 2.5·1024
    (2048, 2560)
    >>> rows.work.transcendentals  # 2·4·4 exponentials
    32
    """
    widths = head_size + value_head_size
    key_values = batch if key_value_batch is None else key_value_batch
    full = queries * keys
    executed = full if executed_pairs is None else executed_pairs
    q, kv, o = batch * queries * head_size, key_values * keys * widths, batch * queries * value_head_size
    work = Work(
        flops_full=2 * batch * full * 2 * widths,
        flops_exact=2 * batch * (full if pairs is None else pairs) * 2 * widths,
        flops_executed=2 * batch * executed * (2 * widths + head_size),
        bytes_read=element_bytes * (q + kv + 2 * o) + logsumexp_bytes * batch * queries,
        bytes_written=element_bytes * (q + kv),
    )
    shape = _fused_shape(batch, queries, keys, head_size, value_head_size)
    (rows,) = softmax_backward(batch * queries, keys, element_bytes=0, op="attention_softmax_backward")
    again = Work(flops_executed=batch * executed, transcendentals=batch * executed)  # P out of S and the logsumexp
    return (
        Piece("attention_backward", "attention", work, shape, "input"),
        replace(rows, work=rows.work + again),
    )


def needed_only(
    pieces: tuple[Piece, ...], needed: tuple[bool, bool, bool], head_size: Amount, value_head_size: Amount
) -> tuple[Piece, ...]:
    """The pieces of `attention_fused_backward` where not every gradient is asked for: it runs all, model FLOPs do not.

    Of dV = Pᵀ dO, dQ = dS K, dK = dSᵀ Q, and dP = dO Vᵀ for these two, the products that are needed.

    Args:
        pieces: of the kernel.
        needed: whether queries, keys and values need a gradient.
        head_size: width of a query and key head.
        value_head_size: width of a value head.

    >>> first, _ = needed_only(attention_fused_backward(2, 4, 4, 8, 8), (False, True, False), 8, 8)
    >>> first.work.flops_full, first.work.flops_executed  # dP and dK, half of 2·1024; all that runs
    (1024, 2560)
    """
    if all(needed):
        return pieces
    of_query, of_key, of_value = needed
    products = head_size * (of_query + of_key) + value_head_size * (of_value + (of_query or of_key))
    every = 2 * (head_size + value_head_size)
    first, *rest = pieces
    work = first.work
    full, exact = (flops and flops * products // every for flops in (work.flops_full, work.flops_exact))
    return (replace(first, work=replace(work, flops_full=full, flops_exact=exact)), *rest)


def _fused_shape(
    batch: Amount, queries: Amount, keys: Amount, head_size: Amount, value_head_size: Amount
) -> tuple[tuple[str, Amount], ...]:
    return (
        ("b", batch),
        ("queries", queries),
        ("keys", keys),
        ("head_size", head_size),
        ("value_head_size", value_head_size),
    )
