"""Lookups and selections: rows by index, the largest of a row, indices in order."""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def embedding(
    tokens: Amount, vocabulary: Amount, hidden: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8
) -> tuple[Piece, ...]:
    """`tokens` rows copied out of [vocabulary, hidden]: no FLOPs.

    A convention that counts the lookup as the one-hot product it replaces reads 2·tokens·vocabulary·hidden off the
    shape.

    >>> embedding(2, 100, 4)[0].work  # 2·(4·4 + 8) read, 2·4·4 written
    Work(bytes_read=48, bytes_written=32)
    """
    rows = element_bytes * tokens * hidden
    work = Work(bytes_read=rows + index_bytes * tokens, bytes_written=rows)
    return (Piece("embedding", "embedding", work, _shape(tokens, vocabulary, hidden)),)


@rule
def embedding_backward(
    tokens: Amount, vocabulary: Amount, hidden: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8
) -> tuple[Piece, ...]:
    """A table of zeros, to whose rows the gradients of the tokens are added: one add an element of dy.

    >>> embedding_backward(2, 100, 4)[0].work.flops_full  # 2·4
    8
    """
    work = Work.of_flops(
        tokens * hidden,
        bytes_read=element_bytes * tokens * hidden + index_bytes * tokens,
        bytes_written=element_bytes * vocabulary * hidden,
    )
    return (Piece("embedding_backward", "embedding", work, _shape(tokens, vocabulary, hidden), "weight"),)


@rule
def embedding_bag(
    tokens: Amount,
    bags: Amount,
    vocabulary: Amount,
    hidden: Amount,
    *,
    mode: str = "sum",
    weighted: bool = False,
    element_bytes: Amount = 4,
    index_bytes: Amount = 8,
) -> tuple[Piece, ...]:
    """Rows of a bag summed, averaged or compared: tokens - bags adds (or compares) an element, no bag being empty.

    Args:
        tokens: rows looked up.
        bags: results.
        vocabulary: rows of the table.
        hidden: elements of a row.
        mode: `sum`, `mean` (a division an element of the result) or `max`.
        weighted: whether each row is multiplied by a number.
        element_bytes: bytes of an element.
        index_bytes: bytes of an index.

    >>> embedding_bag(10, 4, 100, 8)[0].work.flops_full  # (10 - 4)·8
    48
    """
    work = Work.of_flops(
        (tokens - bags) * hidden + (tokens * hidden if weighted else 0),
        transcendentals=bags * hidden if mode == "mean" else 0,
        bytes_read=element_bytes * tokens * (hidden + (1 if weighted else 0)) + index_bytes * (tokens + bags),
        bytes_written=element_bytes * bags * hidden,
    )
    return (Piece("embedding_bag", "embedding", work, (*_shape(tokens, vocabulary, hidden), ("bags", bags))),)


@rule
def embedding_bag_backward(
    tokens: Amount,
    bags: Amount,
    vocabulary: Amount,
    hidden: Amount,
    *,
    mode: str = "sum",
    weighted: bool = False,
    element_bytes: Amount = 4,
    index_bytes: Amount = 8,
) -> tuple[Piece, ...]:
    """The gradient of a bag added to its rows of a table of zeros, divided (mean) or multiplied (weights) before.

    >>> [embedding_bag_backward(10, 4, 100, 8, mode=mode)[0].work.flops_full for mode in ("sum", "max")]  # 10·8, 4·8
    [80, 32]
    """
    added = bags if mode == "max" else tokens
    work = Work.of_flops(
        added * hidden + (tokens * hidden if weighted or mode == "mean" else 0),
        transcendentals=bags if mode == "mean" else 0,
        bytes_read=element_bytes * bags * hidden + index_bytes * 2 * tokens,
        bytes_written=element_bytes * vocabulary * hidden,
    )
    shape = (*_shape(tokens, vocabulary, hidden), ("bags", bags))
    return (Piece("embedding_bag_backward", "embedding", work, shape, "weight"),)


@rule
def gather(rows: Amount, size: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8) -> tuple[Piece, ...]:
    """`rows` rows of `size` elements picked by index (tokens to their experts).

    >>> gather(2, 4)[0].work
    Work(bytes_read=48, bytes_written=32)
    """
    moved = element_bytes * rows * size
    work = Work(bytes_read=moved + index_bytes * rows, bytes_written=moved)
    return (Piece("gather", "gather", work, (("rows", rows), ("size", size))),)


@rule
def scatter_add(rows: Amount, size: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8) -> tuple[Piece, ...]:
    """`rows` rows of `size` elements added at an index: one add an element.

    >>> scatter_add(2, 4)[0].work.flops_full
    8
    """
    moved = element_bytes * rows * size
    work = Work.of_flops(rows * size, bytes_read=2 * moved + index_bytes * rows, bytes_written=moved)
    return (Piece("scatter_add", "gather", work, (("rows", rows), ("size", size))),)


@rule
def topk(rows: Amount, columns: Amount, chosen: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The `chosen` largest of each row of `columns`, and where they are: a pass of compares for each.

    >>> topk(2, 8, 3)[0].work.flops_full  # 2·8·3
    48
    """
    work = Work.of_flops(
        rows * columns * chosen,
        bytes_read=element_bytes * rows * columns,
        bytes_written=(element_bytes + 8) * rows * chosen,
    )
    return (Piece("topk", "gather", work, (("rows", rows), ("columns", columns), ("chosen", chosen))),)


@rule
def sort_indices(elements: Amount, *, element_bytes: Amount = 8) -> tuple[Piece, ...]:
    """Integers in order, and where they were: comparing integers is no floating point operation.

    >>> sort_indices(10)[0].work
    Work(bytes_read=80, bytes_written=160)
    """
    work = Work(bytes_read=element_bytes * elements, bytes_written=(element_bytes + 8) * elements)
    return (Piece("sort", "gather", work, (("elements", elements),)),)


def _shape(tokens: Amount, vocabulary: Amount, hidden: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("tokens", tokens), ("vocabulary", vocabulary), ("hidden", hidden))
