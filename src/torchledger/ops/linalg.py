"""Dense linear algebra: factorizations, solves and eigenvalues of batches of matrices.

Counts are those of the LAPACK working notes, exact and with divisions and roots inside: LAWN 41 (Anderson, Dongarra,
Ostrouchov, "Installation Guide for LAPACK", appendix C, https://www.netlib.org/lapack/lawnspdf/lawn41.pdf), multiplies
and adds summed. Singular values and eigenvalues are found by iteration; their counts are the constants of Golub and Van
Loan, Matrix Computations, 4th edition (sections 5.4.5 and 8.6.3, 8.3, 7.5.6), which take about two sweeps a value.
Complex numbers cost 4 times as much: a multiply is 6 and an add 2 where a real pair is 2.

They are the kind `linalg`, apart from `matmul`: MFU counts what matrix units are asked to multiply, by convention
matrix products, attention and convolutions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torchledger.ledger import Amount, Work
from torchledger.ops.piece import Piece
from torchledger.ops.registry import rule


def cholesky_flops(n: int) -> int:
    """POTRF: n³/3 + n²/2 + n/6.

    >>> cholesky_flops(1), cholesky_flops(6)  # one root; 72 + 18 + 1
    (1, 91)
    """
    return n * (n + 1) * (2 * n + 1) // 6


def lu_flops(m: int, n: int) -> int:
    """GETRF, a column j: a reciprocal, m - j products, 2·(m - j)·(n - j) for the rest; a square 2n³/3 - n²/2 + 5n/6.

    >>> lu_flops(6, 6)  # 144 - 18 + 5
    131
    """
    return sum(1 + (m - j) + 2 * (m - j) * (n - j) for j in range(1, min(m, n) + 1))


def inverse_of_factors_flops(n: int) -> int:
    """GETRI: 4·n³/3 - n² + 5·n/3.

    >>> inverse_of_factors_flops(6)  # 288 - 36 + 10
    262
    """
    return (4 * n**3 - 3 * n**2 + 5 * n) // 3


def qr_flops(m: int, n: int) -> int:
    """GEQRF, Householder's: 2·m·n² - 2·n³/3 + m·n + n² + 14·n/3, the sizes exchanged in part where m < n.

    >>> qr_flops(6, 3)  # 108 - 18 + 18 + 9 + 14
    131
    """
    if m >= n:
        return (6 * m * n**2 - 2 * n**3 + 3 * m * n + 3 * n**2 + 14 * n) // 3
    return (6 * n * m**2 - 2 * m**3 + 9 * n * m - 3 * m**2 + 14 * m) // 3


def form_q_flops(m: int, n: int, k: int) -> int:
    """ORGQR, an m by n Q of k reflections: 4·m·n·k - 2·(m + n)·k² + 4·k³/3 + 3·n·k - m·k - k² - 4·k/3.

    >>> form_q_flops(6, 3, 3)  # 216 - 162 + 36 + 27 - 18 - 9 - 4
    86
    """
    return (12 * m * n * k - 6 * (m + n) * k**2 + 4 * k**3 + 9 * n * k - 3 * m * k - 3 * k**2 - 4 * k) // 3


def apply_q_flops(m: int, n: int, k: int) -> int:
    """ORMQR: k reflections of length m applied to n columns, 4·n·m·k - 2·n·k² + 3·n·k.

    >>> apply_q_flops(6, 2, 3)  # 144 - 36 + 18
    126
    """
    return 4 * n * m * k - 2 * n * k**2 + 3 * n * k


def triangular_solve_flops(n: int, columns: int, *, unit: bool = False) -> int:
    """TRSM: n² for each right-hand side, n of them divisions, which a diagonal of ones saves.

    >>> triangular_solve_flops(6, 2), triangular_solve_flops(6, 2, unit=True)  # 2·36; 2·(36 - 6)
    (72, 60)
    """
    return columns * (n * n - (n if unit else 0))


def singular_value_flops(m: int, n: int, *, vectors: str = "none") -> int:
    """Golub and Reinsch (table 8.6.1), m at least n: 4mn² - 4n³/3; thin 14mn² + 8n³; full 4m²n + 8mn² + 9n³.

    >>> [singular_value_flops(6, 3, vectors=which) for which in ("none", "thin", "full")]
    [180, 972, 1107]
    """
    m, n = max(m, n), min(m, n)
    return {
        "none": (12 * m * n**2 - 4 * n**3) // 3,
        "thin": 14 * m * n**2 + 8 * n**3,
        "full": 4 * m**2 * n + 8 * m * n**2 + 9 * n**3,
    }[vectors]


def symmetric_eigenvalue_flops(n: int, *, vectors: bool) -> int:
    """The symmetric QR algorithm (8.3.3): 4n³/3 for eigenvalues, 9n³ with eigenvectors.

    >>> symmetric_eigenvalue_flops(6, vectors=False), symmetric_eigenvalue_flops(6, vectors=True)
    (288, 1944)
    """
    return 9 * n**3 if vectors else 4 * n**3 // 3


def eigenvalue_flops(n: int, *, vectors: bool) -> int:
    """Hessenberg form and the QR algorithm (7.5.6): 10n³ for eigenvalues, 25n³ with the Schur vectors.

    >>> eigenvalue_flops(6, vectors=False), eigenvalue_flops(6, vectors=True)
    (2160, 5400)
    """
    return (25 if vectors else 10) * n**3


#: Operation -> FLOPs of one real matrix m by n with `columns` right-hand sides (or reflections).
factorizations: Mapping[str, Callable[[int, int, int], int]] = {
    "cholesky": lambda _m, n, _columns: cholesky_flops(n),
    "cholesky_solve": lambda _m, n, columns: 2 * triangular_solve_flops(n, columns),
    "cholesky_inverse": lambda _m, n, _columns: (4 * n**3 + 3 * n**2 + 5 * n) // 6,  # POTRI
    "lu": lambda m, n, _columns: lu_flops(m, n),
    "lu_solve": lambda _m, n, columns: (
        triangular_solve_flops(n, columns, unit=True) + triangular_solve_flops(n, columns)
    ),
    "solve": lambda m, n, columns: lu_flops(n, n) + factorizations["lu_solve"](m, n, columns),
    "inverse": lambda _m, n, _columns: lu_flops(n, n) + inverse_of_factors_flops(n),
    "determinant": lambda _m, n, _columns: lu_flops(n, n) + max(n - 1, 0),  # the diagonal's product
    "log_determinant": lambda _m, n, _columns: lu_flops(n, n) + max(2 * n - 1, 0),  # n logs and their sum
    "ldl": lambda _m, n, _columns: cholesky_flops(n) + 3 * n,  # SYTRF: n³/3 + n²/2 + 19n/6
    "ldl_solve": lambda _m, n, columns: 2 * n * n * columns,  # SYTRS
    "qr_factors": lambda m, n, _columns: qr_flops(m, n),
    "qr": lambda m, n, columns: qr_flops(m, n) + form_q_flops(m, columns, min(m, n)),
    "form_q": form_q_flops,
    "apply_q": apply_q_flops,
    "triangular_solve": lambda _m, n, columns: triangular_solve_flops(n, columns),
    "unit_triangular_solve": lambda _m, n, columns: triangular_solve_flops(n, columns, unit=True),
    "singular_values": lambda m, n, _columns: singular_value_flops(m, n),
    "svd": lambda m, n, _columns: singular_value_flops(m, n, vectors="thin"),
    "svd_full": lambda m, n, _columns: singular_value_flops(m, n, vectors="full"),
    "symmetric_eigenvalues": lambda _m, n, _columns: symmetric_eigenvalue_flops(n, vectors=False),
    "symmetric_eigenvectors": lambda _m, n, _columns: symmetric_eigenvalue_flops(n, vectors=True),
    "eigenvalues": lambda _m, n, _columns: eigenvalue_flops(n, vectors=False),
    "eigenvectors": lambda _m, n, _columns: eigenvalue_flops(n, vectors=True),
    # A of full rank by QR: Qᵀb, then R x = Qᵀb; where m < n, the factors of Aᵀ.
    "least_squares": lambda m, n, columns: (
        qr_flops(max(m, n), min(m, n))
        + apply_q_flops(max(m, n), columns, min(m, n))
        + triangular_solve_flops(min(m, n), columns)
    ),
}


@rule
def matrix_factorization(
    name: str,
    batch: int,
    m: int,
    n: int,
    columns: int = 1,
    *,
    complex_numbers: bool = False,
    element_bytes: Amount = 4,
) -> tuple[Piece, ...]:
    """`name` of each of `batch` matrices m by n.

    Args:
        name: a key of `factorizations`.
        batch: matrices.
        m: rows.
        n: columns of the matrix.
        columns: right-hand sides, reflections, or columns of Q.
        complex_numbers: whether entries are complex.
        element_bytes: bytes of an entry.

    Raises:
        KeyError: no such name.

    >>> matrix_factorization("cholesky", 2, 6, 6)[0].work.flops_full  # 2·91
    182
    """
    flops = batch * factorizations[name](m, n, columns) * (4 if complex_numbers else 1)
    work = Work.of_flops(flops, bytes_read=element_bytes * batch * m * n, bytes_written=element_bytes * batch * m * n)
    return (Piece(name, "linalg", work, (("batch", batch), ("m", m), ("n", n), ("columns", columns))),)


@rule
def cross_product(vectors: Amount, *, element_bytes: Amount = 4) -> tuple[Piece, ...]:
    """Cross product a × b of vectors of three: 6 multiplies, 3 subtractions.

    >>> cross_product(10)[0].work.flops_full
    90
    """
    moved = 3 * element_bytes * vectors
    work = Work.of_flops(9 * vectors, bytes_read=2 * moved, bytes_written=moved)
    return (Piece("cross", "pointwise", work, (("vectors", vectors),)),)
