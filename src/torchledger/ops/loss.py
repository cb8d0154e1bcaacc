"""Cross-entropy of logits against token ids: log-softmax and the negative log-likelihood, forward and backward."""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


@rule
def log_softmax(rows: Amount, columns: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Each row x - max x - log sum exp(x - max x): n - 1 compares, n differences, n exp, n - 1 adds, a log, n more.

    >>> log_softmax(2, 4)[0].work.flops_full, log_softmax(2, 4)[0].work.transcendentals  # 2·(4·4 - 2), 2·(4 + 1)
    (28, 10)
    """
    work = Work.of_flops(
        rows * (4 * columns - 2),
        transcendentals=rows * (columns + 1),
        bytes_read=element_bytes * rows * columns,
        bytes_written=element_bytes * rows * columns,
    )
    return (Piece("log_softmax", "loss", work, _shape(rows, columns)),)


@rule
def log_softmax_backward(rows: Amount, columns: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Input gradient dx = dy - exp(y)·sum(dy): n - 1 adds, n exp, n products, n differences.

    >>> log_softmax_backward(2, 4)[0].work.flops_full  # 2·(3·4 - 1)
    22
    """
    work = Work.of_flops(
        rows * (3 * columns - 1),
        transcendentals=rows * columns,
        bytes_read=2 * element_bytes * rows * columns,
        bytes_written=element_bytes * rows * columns,
    )
    return (Piece("log_softmax_backward", "loss", work, _shape(rows, columns), "input"),)


@rule
def nll_loss(rows: Amount, columns: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8) -> tuple[Piece, ...]:
    """Minus the mean of one element a row: rows - 1 adds and a division; the loss and the weight's sum are written.

    >>> nll_loss(8, 4)[0].work.flops_full
    7
    """
    work = Work.of_flops(
        rows - 1,
        transcendentals=1,
        bytes_read=(element_bytes + index_bytes) * rows,
        bytes_written=2 * element_bytes,
    )
    return (Piece("nll_loss", "loss", work, _shape(rows, columns)),)


@rule
def nll_loss_backward(
    rows: Amount, columns: Amount, *, element_bytes: Amount = 4, index_bytes: Amount = 8
) -> tuple[Piece, ...]:
    """Zeros, and -dy/rows at one element a row: one division, the rest is writing.

    >>> nll_loss_backward(8, 4)[0].work.bytes_written  # 4·8·4
    128
    """
    work = Work(
        transcendentals=1,
        bytes_read=index_bytes * rows + 2 * element_bytes,
        bytes_written=element_bytes * rows * columns,
    )
    return (Piece("nll_loss_backward", "loss", work, _shape(rows, columns), "input"),)


def _shape(rows: Amount, columns: Amount) -> tuple[tuple[str, Amount], ...]:
    return (("rows", rows), ("columns", columns))
