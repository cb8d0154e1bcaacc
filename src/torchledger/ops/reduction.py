"""Reductions of rows to one value, and softmax, which is made of two of them."""

from __future__ import annotations

from torchledger.ledger import Amount, Kind, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Name -> (flops an element, flops a row, transcendentals a row). A sum of n takes n - 1 adds.
per_row: dict[str, tuple[int, int, int]] = {
    "sum": (1, -1, 0),
    "mean": (1, -1, 1),  # the division
    "amax": (1, -1, 0),
    "amin": (1, -1, 0),
    "norm": (2, -1, 1),  # squares, their sum, the root
    "var": (4, -2, 2),  # the mean (n - 1, division), then differences, squares, their sum (3·n - 1), division
    "std": (4, -2, 3),  # its root
    "nansum": (2, -1, 0),  # NaN is looked for
    "count_nonzero": (2, -1, 0),  # a compare, and a sum of ones
    "aminmax": (2, -2, 0),
    "absolute_norm": (2, -1, 0),  # |a|, or a ≠ 0, and their sum or largest
    "power_norm": (2, -1, 1),  # |a|, to a power (one transcendental an element more), their sum, a root
    "power_sum": (2, -1, 0),
    "prod": (1, -1, 0),
    "any": (1, -1, 0),
    "all": (1, -1, 0),
    "distance": (3, -1, 1),  # differences, squares, their sum, the root
}


@rule
def reduction(name: str, rows: Amount, columns: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Each of `rows` rows of `columns` elements to one value.

    Raises:
        KeyError: `name` is not in `per_row`.

    >>> reduction("sum", 1, 10)[0].work.flops_full
    9
    >>> reduction("norm", 1, 10)[0].work.flops_full  # 10 squares, 9 adds
    19
    """
    an_element, a_row, transcendentals = per_row[name]
    work = Work.of_flops(
        rows * (an_element * columns + a_row),
        transcendentals=transcendentals * rows,
        bytes_read=element_bytes * rows * columns,
        bytes_written=element_bytes * rows,
    )
    return (Piece(name, "reduction", work, (("rows", rows), ("columns", columns))),)


@rule
def softmax(
    rows: Amount,
    columns: Amount,
    *,
    element_bytes: Amount = 4,
    output_element_bytes: Amount = None,
    op: str = "softmax",
    kind: Kind = "reduction",
) -> tuple[Piece, ...]:
    """exp(x - max x) / sum: largest (n - 1), differences (n), exp (n), sum (n - 1), divisions (n) in a row of n.

    >>> softmax(2, 4)[0].work.flops_full, softmax(2, 4)[0].work.transcendentals  # 2·(3·4 - 2), 2·(2·4)
    (20, 16)
    """
    written = element_bytes if output_element_bytes is None else output_element_bytes
    work = Work.of_flops(
        rows * (3 * columns - 2),
        transcendentals=2 * rows * columns,
        bytes_read=element_bytes * rows * columns,
        bytes_written=written * rows * columns,
    )
    return (Piece(op, kind, work, (("rows", rows), ("columns", columns))),)


@rule
def softmax_backward(
    rows: Amount, columns: Amount, *, element_bytes: Amount = 4, op: str = "softmax_backward", kind: Kind = "reduction"
) -> tuple[Piece, ...]:
    """Input gradient dx = y·(dy - sum(y·dy)): n products, n - 1 adds, n differences, n products in a row of n.

    >>> softmax_backward(2, 4)[0].work.flops_full  # 2·(4·4 - 1)
    30
    """
    work = Work.of_flops(
        rows * (4 * columns - 1),
        bytes_read=2 * element_bytes * rows * columns,
        bytes_written=element_bytes * rows * columns,
    )
    return (Piece(op, kind, work, (("rows", rows), ("columns", columns)), "input"),)
