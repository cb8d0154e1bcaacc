import pytest

from torchledger import ops
from torchledger.ledger.line import CONTRACTIONS
from torchledger.ops import linalg


def _matrix(n, m, counted):
    return [[counted.number(1.0 / (1 + i + j) + (i == j)) for j in range(m)] for i in range(n)]


def _all(taken):
    flops, divisions_and_roots = taken
    return flops + divisions_and_roots  # LAWN 41 counts them all alike


@pytest.mark.parametrize(("m", "n"), [(5, 5), (7, 3), (3, 6)])
def test_lu_is_what_elimination_does(counted, m, n):
    """A reciprocal, a product a row below, a multiply-add for each element of what is left."""
    a = _matrix(m, n, counted)
    for j in range(min(m, n)):
        reciprocal = 1 / a[j][j]
        for i in range(j + 1, m):
            a[i][j] = a[i][j] * reciprocal
            for k in range(j + 1, n):
                a[i][k] = a[i][k] - a[i][j] * a[j][k]
    assert linalg.lu_flops(m, n) == _all(counted.taken())


def test_cholesky_is_what_the_recurrence_does(counted):
    """n³/3 + n²/2 + n/6: roots, divisions, and multiply-adds of the lower triangle."""
    n = 6
    a = _matrix(n, n, counted)
    for j in range(n):
        for k in range(j):
            a[j][j] = a[j][j] - a[j][k] * a[j][k]
        a[j][j] = a[j][j].sqrt()
        for i in range(j + 1, n):
            for k in range(j):
                a[i][j] = a[i][j] - a[i][k] * a[j][k]
            a[i][j] = a[i][j] / a[j][j]
    assert linalg.cholesky_flops(n) == _all(counted.taken()) == n**3 // 3 + n**2 // 2 + n // 6


@pytest.mark.parametrize("unit", [False, True])
def test_a_triangle_takes_n_squared(counted, unit):
    n = 6
    a = _matrix(n, n, counted)
    for _side in range(2):
        x = counted.numbers(n)
        for i in range(n):
            for k in range(i):
                x[i] = x[i] - a[i][k] * x[k]
            if not unit:
                x[i] = x[i] / a[i][i]
    assert linalg.triangular_solve_flops(n, 2, unit=unit) == _all(counted.taken())


@pytest.mark.parametrize(
    ("name", "leading"),
    [
        ("cholesky", 1 / 3), ("lu", 2 / 3), ("inverse", 2), ("solve", 2 / 3), ("determinant", 2 / 3),
        ("qr_factors", 2 - 2 / 3), ("qr", 2 * (2 - 2 / 3)), ("ldl", 1 / 3), ("symmetric_eigenvalues", 4 / 3),
        ("symmetric_eigenvectors", 9), ("eigenvalues", 10), ("eigenvectors", 25), ("singular_values", 4 - 4 / 3),
        ("svd", 22), ("svd_full", 21), ("cholesky_inverse", 2 / 3), ("least_squares", 2 - 2 / 3),
    ],
)  # fmt: skip
def test_large_matrices_take_their_textbook_multiple_of_n_cubed(name, leading):
    """Golub and Van Loan's table; what is left is of lower order."""
    n = 3000
    columns = n if name == "qr" else 1
    flops = ops.matrix_factorization(name, 1, n, n, columns)[0].work.flops_full
    assert flops / n**3 == pytest.approx(leading, rel=2e-3)


def test_tall_matrices_follow_their_two_sizes():
    """2mn² - 2n³/3 for the factors, as much again for a thin Q."""
    m, n = 9000, 600
    assert linalg.qr_flops(m, n) == pytest.approx(2 * m * n**2 - 2 * n**3 / 3, rel=3e-3)
    assert linalg.form_q_flops(m, n, n) == pytest.approx(2 * m * n**2 - 2 * n**3 / 3, rel=3e-3)


def test_square_formulas_meet():
    """Both branches of GEQRF say the same of a square."""
    n = 12
    assert linalg.qr_flops(n, n) == (6 * n**3 - 2 * n**3 + 9 * n * n - 3 * n * n + 14 * n) // 3


def test_complex_is_four_times_and_no_contraction():
    real, of_complex = (ops.matrix_factorization("lu", 2, 8, 8, complex_numbers=which)[0] for which in (False, True))
    assert of_complex.work.flops_full == 4 * real.work.flops_full
    assert real.kind == "linalg" not in CONTRACTIONS


def test_a_cross_product_is_six_products_and_three_differences():
    assert ops.cross_product(4)[0].work.flops_full == 4 * (6 + 3)
