"""Prices of linear algebra on batches of matrices, and of Fourier transforms."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Price, Seen, price_of, prices, size_of
from torchledger.tracer.signature import TensorMeta

#: Operation -> the row of `ops.linalg.factorizations` and the names of its matrix; right-hand sides are the second.
_OF_ONE = {
    "linalg_cholesky_ex": ("cholesky", "self"),
    "cholesky": ("cholesky", "self"),
    "cholesky_inverse": ("cholesky_inverse", "self"),
    "linalg_lu": ("lu", "A"),
    "linalg_lu_factor_ex": ("lu", "A"),
    "linalg_inv_ex": ("inverse", "A"),
    "_linalg_det": ("determinant", "A"),
    "_linalg_slogdet": ("log_determinant", "A"),
    "linalg_ldl_factor_ex": ("ldl", "self"),
    "geqrf": ("qr_factors", "self"),
    "linalg_eig": ("eigenvectors", "self"),
    "linalg_eigvals": ("eigenvalues", "self"),
    "_linalg_eigvals": ("eigenvalues", "self"),
}
_WITH_SIDES = {
    "cholesky_solve": ("cholesky_solve", "input2", "self"),
    "_cholesky_solve_helper": ("cholesky_solve", "A", "self"),
    "linalg_lu_solve": ("lu_solve", "LU", "B"),
    "_linalg_solve_ex": ("solve", "A", "B"),
    "linalg_ldl_solve": ("ldl_solve", "LD", "B"),
    "linalg_lstsq": ("least_squares", "self", "b"),
}


@price_of("linalg_solve_triangular", "triangular_solve")
def triangular_solve(seen: Seen) -> tuple[Piece, ...]:
    """A system with a triangle; its diagonal may be known to be ones."""
    matrix, sides = ("A", "self") if seen.op == "triangular_solve" else ("self", "B")
    name = "unit_triangular_solve" if seen.arguments["unitriangular"] else "triangular_solve"
    return _factorization(seen, name, seen.tensor(matrix), _sides(seen, seen.tensor(matrix), seen.tensor(sides)))


@price_of("linalg_qr")
def qr(seen: Seen) -> tuple[Piece, ...]:
    """Q and R; the mode says how many columns of Q are formed."""
    matrix, mode = seen.tensor("A"), seen.arguments["mode"]
    m, n = matrix.shape[-2:]
    if mode == "r":
        return _factorization(seen, "qr_factors", matrix)
    return _factorization(seen, "qr", matrix, m if mode == "complete" else min(m, n))


@price_of("linalg_householder_product")
def form_q(seen: Seen) -> tuple[Piece, ...]:
    """Q of its reflections."""
    return _factorization(seen, "form_q", seen.tensor("input"), seen.tensor("tau").shape[-1])


@price_of("ormqr")
def apply_q(seen: Seen) -> tuple[Piece, ...]:
    """Q times a matrix, from one side or the other: as many reflections as the factor has."""
    other = seen.tensor("input3")
    rows, columns = other.shape[-2:] if seen.arguments["left"] else other.shape[-2:][::-1]
    batch = size_of(other.shape[:-2])
    reflections = seen.tensor("input2").shape[-1]
    return ops.matrix_factorization("apply_q", batch, rows, columns, reflections, complex_numbers=_complex(other))


@price_of("_linalg_svd")
def singular_values(seen: Seen) -> tuple[Piece, ...]:
    """Singular values, with vectors thin or full, or without."""
    vectors = "svd_full" if seen.arguments["full_matrices"] else "svd"
    return _factorization(seen, vectors if seen.arguments["compute_uv"] else "singular_values", seen.tensor("A"))


@price_of("_linalg_eigh")
def symmetric_eigenvalues(seen: Seen) -> tuple[Piece, ...]:
    """Eigenvalues of a symmetric matrix, with vectors or without."""
    name = "symmetric_eigenvectors" if seen.arguments["compute_v"] else "symmetric_eigenvalues"
    return _factorization(seen, name, seen.tensor("A"))


@price_of("linalg_pinv")
def pseudo_inverse(seen: Seen) -> tuple[Piece, ...]:
    """V·Σ⁺·Uᴴ: a thin decomposition, its columns scaled, a product."""
    matrix = seen.tensor("self")
    m, n = matrix.shape[-2:]
    batch, k = size_of(matrix.shape[:-2]), min(m, n)
    name = "symmetric_eigenvectors" if seen.arguments.get("hermitian") else "svd"
    pieces = _factorization(seen, name, matrix)
    scaled = ops.pointwise("scale", batch * n * k)
    return pieces + scaled + ops.matmul(batch * (4 if _complex(matrix) else 1), n, m, k)


@price_of("linalg_cross")
def cross(seen: Seen) -> tuple[Piece, ...]:
    """Cross products of vectors of three."""
    return ops.cross_product(seen.num_results // 3)


@price_of("_fft_c2c", "_fft_r2c", "_fft_c2r")
def fourier(seen: Seen) -> tuple[Piece, ...]:
    """A transform along some dimensions; the longer side tells how many points a real one has."""
    shape = list(seen.tensor("self").shape)
    dims = [dim % len(shape) for dim in seen.arguments["dim"][1:]]
    if seen.op == "_fft_c2r" and dims:
        shape[dims[-1]] = int(seen.arguments["last_dim_size"])
    points = size_of(tuple(shape[dim] for dim in dims))
    batch = size_of(tuple(shape)) // max(points, 1)
    scaled = seen.arguments["normalization"] != 0
    return ops.fourier_transform(batch, points, real=seen.op != "_fft_c2c", scaled=scaled)


def _of_one(name: str, matrix: str) -> Price:
    return lambda seen: _factorization(seen, name, seen.tensor(matrix))


def _with_sides(name: str, matrix: str, sides: str) -> Price:
    def price(seen: Seen) -> tuple[Piece, ...]:
        left = seen.tensor(matrix)
        return _factorization(seen, name, left, _sides(seen, left, seen.tensor(sides)))

    return price


def _factorization(seen: Seen, name: str, matrix: TensorMeta, columns: int = 1) -> tuple[Piece, ...]:
    """Of every matrix of the batch, which the result may widen (a solve broadcasts)."""
    m, n = matrix.shape[-2:]
    batch = size_of(matrix.shape[:-2])
    if seen.op in _BROADCASTING and len(seen.results[0].shape) > 2:
        batch = max(batch, size_of(seen.results[0].shape[:-2]))
    return ops.matrix_factorization(name, batch, m, n, columns, complex_numbers=_complex(matrix))


def _sides(seen: Seen, matrix: TensorMeta, sides: TensorMeta) -> int:
    """Right-hand sides of each matrix: columns, rows where it stands at the right, one where they are vectors."""
    if len(sides.shape) < 2 or (len(sides.shape) == len(matrix.shape) - 1 and sides.shape == matrix.shape[:-1]):
        return 1
    return sides.shape[-1] if seen.arguments.get("left", True) else sides.shape[-2]


def _complex(meta: TensorMeta) -> bool:
    return meta.dtype.is_complex


_BROADCASTING = frozenset({"linalg_solve_triangular", "linalg_lu_solve", "cholesky_solve", "linalg_ldl_solve"})

for _op, _names in _OF_ONE.items():
    prices[_op] = _of_one(*_names)
for _op, _all_names in _WITH_SIDES.items():
    prices[_op] = _with_sides(*_all_names)
