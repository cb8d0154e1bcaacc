"""Losses other than cross-entropy: element by element with a mean or a sum, by row, and over alignments (CTC)."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Name -> (FLOPs, transcendentals) an element forward, then backward (aten/src/ATen/native/Loss.cpp, cpu kernels).
criteria: Mapping[str, tuple[int, int, int, int]] = {
    "mse": (2, 0, 3, 0),  # (a - t)²; 2/n·(a - t)·dy
    "smooth_l1": (5, 1, 5, 1),  # |a - t| 2, < β, ½·z·z/β; a - t, two compares, c·d·dy/β
    "huber": (5, 0, 5, 0),  # |a - t| 2, < δ, ½·z·z; a - t, two compares, c·d·dy
    "binary_cross_entropy": (
        6,
        2,
        5,
        1,
    ),  # (t - 1)·max(log1p(-a), -100) - t·max(log a, -100); dy·(a - t)/max(a·(1 - a), ε)
    "binary_cross_entropy_with_logits": (6, 2, 0, 0),  # (1 - t)·a - logsigmoid(a); by other operations
    "soft_margin": (2, 2, 5, 2),  # log(1 + exp(-t·a)); c·t·z/(1 + z)·dy with z made again
}


@rule
def criterion(
    name: str,
    elements: Amount,
    *,
    mean: bool = True,
    reduced: bool = True,
    weight_flops: Amount = 0,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """`name` of each of `elements` elements, summed (n - 1 adds), and divided by n where it is a mean.

    Args:
        name: a key of `criteria`.
        elements: elements of the input.
        mean: whether the sum is divided.
        reduced: whether there is a sum.
        weight_flops: FLOPs an element of given weights.
        element_bytes: bytes of an element.

    Raises:
        KeyError: no such name.

    >>> criterion("mse", 10)[0].work.flops_full, criterion("mse", 10, reduced=False)[0].work.flops_full  # 2·10 + 9
    (29, 20)
    """
    flops, transcendentals, _, _ = criteria[name]
    work = Work.of_flops(
        (flops + weight_flops) * elements + (elements - 1 if reduced else 0),
        transcendentals=transcendentals * elements + (1 if reduced and mean else 0),
        bytes_read=2 * element_bytes * elements,
        bytes_written=element_bytes * (1 if reduced else elements),
    )
    return (Piece(name, "loss", work, (("elements", elements),)),)


@rule
def criterion_backward(
    name: str, elements: Amount, *, weight_flops: Amount = 0, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """Its gradient; the 1/n of a mean is a number.

    >>> criterion_backward("mse", 10)[0].work.flops_full
    30
    """
    _, _, flops, transcendentals = criteria[name]
    work = Work.of_flops(
        (flops + weight_flops) * elements,
        transcendentals=transcendentals * elements,
        bytes_read=2 * element_bytes * elements,
        bytes_written=element_bytes * elements,
    )
    return (Piece(f"{name}_backward", "loss", work, (("elements", elements),), "input"),)


@rule
def multi_margin(
    rows: Amount,
    classes: Amount,
    *,
    power: int = 1,
    weighted: bool = False,
    reduced: bool = True,
    mean: bool = True,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """Sum over wrong classes of max(0, m - x_y + x_i)^p, over the number of classes.

    A wrong class: 2 adds, a compare, [a square], [a weight]; C - 2 adds, a division; then the rows' sum and mean.

    >>> multi_margin(2, 5)[0].work.flops_full  # 2·(4·3 + 3) + 1
    31
    """
    each = 3 + (1 if power == 2 else 0) + (1 if weighted else 0)
    work = Work.of_flops(
        rows * (each * (classes - 1) + classes - 2) + (rows - 1 if reduced else 0),
        transcendentals=rows + (1 if reduced and mean else 0),
        bytes_read=element_bytes * rows * classes + 8 * rows,
        bytes_written=element_bytes * (1 if reduced else rows),
    )
    return (Piece("multi_margin", "loss", work, (("rows", rows), ("classes", classes))),)


@rule
def multi_margin_backward(
    rows: Amount, classes: Amount, *, power: int = 1, weighted: bool = False, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """A wrong class: margin 2, a compare, [2·c·z 2], [weight], and its add to the right class; then ·dy an element.

    >>> multi_margin_backward(2, 5)[0].work.flops_full  # 2·(4·4 + 5)
    42
    """
    each = 4 + (2 if power == 2 else 0) + (1 if weighted else 0)
    work = Work.of_flops(
        rows * (each * (classes - 1) + classes),
        bytes_read=element_bytes * rows * classes + 8 * rows,
        bytes_written=element_bytes * rows * classes,
    )
    return (Piece("multi_margin_backward", "loss", work, (("rows", rows), ("classes", classes)), "input"),)


@rule
def ctc(frames: Amount, states: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Forward variables (Graves et al., ICML 2006, equations 6 and 7), in logarithms.

    A frame and state: the largest of three 2, three differences, exp, 2 adds, log, + largest, + log-probability.

    Args:
        frames: input frames times states, summed over the batch, over `states`.
        states: 2·labels + 1.
        element_bytes: bytes of an element.

    >>> ctc(10, 5)[0].work.flops_full, ctc(10, 5)[0].work.transcendentals  # 9·50, 4·50
    (450, 200)
    """
    cells = frames * states
    work = Work.of_flops(
        9 * cells, transcendentals=4 * cells, bytes_read=element_bytes * cells, bytes_written=element_bytes * cells
    )
    return (Piece("ctc", "loss", work, (("frames", frames), ("states", states))),)


@rule
def ctc_backward(frames: Amount, states: Amount, scores: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Backward variables as forward; α + β an add, gathered a class by log-sum-exp (4, 3 transcendentals); then scores.

    A score: exp(lp) - exp(lcab + nll - lp), times dy: 4 and 2 exponentials.

    >>> ctc_backward(10, 5, 60)[0].work.flops_full  # 14·50 + 4·60
    940
    """
    cells = frames * states
    work = Work.of_flops(
        14 * cells + 4 * scores,
        transcendentals=7 * cells + 2 * scores,
        bytes_read=element_bytes * (cells + scores),
        bytes_written=element_bytes * scores,
    )
    return (Piece("ctc_backward", "loss", work, (("frames", frames), ("states", states)), "input"),)
