"""Optimizer steps beside AdamW and SGD: Lion, Adafactor, Muon's orthogonalization, AdamW with 8-bit moments."""

from __future__ import annotations

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule

#: Entries of the map of 256 values that an 8-bit moment is looked up in are found by so many compares.
_SEARCH_COMPARES = 8


@rule
def lion(elements: Amount, *, weight_decay: bool = True, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """One Lion step (Chen et al., arXiv:2302.06675, algorithm 2): sign(β1·m + (1 - β1)·g), [decay], m by β2.

    An element: the first mean is 3, a sign 3, p - lr·u 2, the second mean 3; decay, p·(1 - lr·wd), 1 more.

    >>> lion(10)[0].work.flops_full, lion(10)[0].work.bytes_moved  # 12·10; p, g, m in and p, m out
    (120, 200)
    """
    work = Work.of_flops(
        (11 + (1 if weight_decay else 0)) * elements,
        bytes_read=3 * element_bytes * elements,
        bytes_written=2 * element_bytes * elements,
    )
    return (Piece("lion", "optimizer", work, (("elements", elements),)),)


@rule
def adafactor(
    rows: Amount, columns: Amount, *, weight_decay: bool = True, element_bytes: Amount = 4
) -> tuple[Piece, ...]:
    """One Adafactor step on a matrix (Shazeer and Stern, arXiv:1804.04235, algorithm 4), as torch.optim.Adafactor runs.

    An element: squares of g and their sums over rows 2, over columns 2, the product of both means 1, over the mean 1
    division, a compare with ε, 1/√ 1, times g 1, squares of the update and their sum 2, of p 2, p - α·u 2; decay 1.
    Kernel by kernel that reads 11 tensors and writes 6 (torch/optim/_adafactor.py, `_single_tensor_adafactor`). What is
    done once a row or a column is next to nothing and left out.

    >>> adafactor(4, 8)[0].work.flops_full, adafactor(4, 8)[0].work.transcendentals  # 14·32, 2·32
    (448, 64)
    """
    elements = rows * columns
    decay = 1 if weight_decay else 0
    work = Work.of_flops(
        (13 + decay) * elements,
        transcendentals=2 * elements,
        bytes_read=(11 + decay) * element_bytes * elements,
        bytes_written=(6 + decay) * element_bytes * elements,
    )
    return (Piece("adafactor", "optimizer", work, (("rows", rows), ("columns", columns))),)


@rule
def newton_schulz(
    shorter: Amount, longer: Amount, *, iterations: int = 5, times: Amount = 1, element_bytes: Amount = 2
) -> tuple[Piece, ...]:
    """A matrix made orthogonal: X ← a·X + (b·A + c·A²)·X, A = X Xᵀ over its shorter side (arXiv:2502.16982, eq. 2).

    With n the shorter and m the longer side an iteration is 2·n²·m + 2·n³ + 2·n²·m FLOPs of matmuls, b·A + c·A² 3 an
    element of A, and a·X + B X 2 of X. They run in BF16, and are of the kind `linalg`: no model FLOPs.

    >>> newton_schulz(2, 4)[0].work.flops_full  # 5·(4·2²·4 + 2·2³ + 3·2² + 2·2·4)
    540
    """
    n, m = shorter, longer
    matrix, square = n * m, n * n
    work = Work.of_flops(
        iterations * (4 * square * m + 2 * n * square + 3 * square + 2 * matrix),
        bytes_read=iterations * element_bytes * (4 * matrix + 4 * square),
        bytes_written=iterations * element_bytes * (matrix + 3 * square),
    )
    return (Piece("newton_schulz", "linalg", work * times, (("b", times), ("m", m), ("n", n), ("k", n))),)


@rule
def muon(elements: Amount, *, weight_decay: bool = True, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """The rest of a Muon step (Moonlight, arXiv:2502.16982, equations 1 and 4): momentum, Nesterov's mean, update.

    An element: μ·b + g is 2, g + μ·b 2, the norm that the matrix is divided by 2 and a division, p - lr·0.2·√m·o 2;
    decay 1. g, b in and b, x out; then p, o in and p out.

    >>> muon(10)[0].work.flops_full, muon(10)[0].work.bytes_moved  # 9·10; 7·4·10
    (90, 280)
    """
    work = Work.of_flops(
        (8 + (1 if weight_decay else 0)) * elements,
        transcendentals=elements,
        bytes_read=4 * element_bytes * elements,
        bytes_written=3 * element_bytes * elements,
    )
    return (Piece("muon", "optimizer", work, (("elements", elements),)),)


@rule
def adamw_8bit(elements: Amount, *, weight_decay: bool = True, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """AdamW whose moments are 8-bit numbers in blocks with a scale each (Dettmers et al., arXiv:2110.02861).

    Beside AdamW's 10 FLOPs and 3 transcendentals an element of each moment is scaled (1), compared for the block's
    largest (2), divided by it (a division) and looked up by bisection in 256 values (8). The scales' bytes are left
    out.

    >>> adamw_8bit(10)[0].work.flops_full, adamw_8bit(10)[0].work.bytes_read  # (11 + 22)·10; (2·4 + 2·1)·10
    (330, 100)
    """
    work = Work.of_flops(
        (10 + (1 if weight_decay else 0) + 2 * (1 + 2 + _SEARCH_COMPARES)) * elements,
        transcendentals=(3 + 2) * elements,
        bytes_read=2 * element_bytes * elements + 2 * elements,
        bytes_written=element_bytes * elements + 2 * elements,
    )
    return (Piece("adamw_8bit", "optimizer", work, (("elements", elements),)),)
