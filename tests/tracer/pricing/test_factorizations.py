import pytest
import torch

from torchledger import ops
from torchledger.ops import linalg

A = torch.eye(6).expand(2, 6, 6).contiguous()
B = torch.zeros(2, 6, 3)


def _linalg(found):
    return [line for line in found if line.kind == "linalg"]


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: torch.linalg.cholesky(A), linalg.cholesky_flops(6)),
        (lambda: torch.linalg.lu_factor(A), linalg.lu_flops(6, 6)),
        (lambda: torch.linalg.inv(A), linalg.lu_flops(6, 6) + linalg.inverse_of_factors_flops(6)),
        (lambda: torch.linalg.solve(A, B), linalg.lu_flops(6, 6) + 3 * (36 + 30)),
        (lambda: torch.linalg.solve_triangular(A, B, upper=True), 3 * 36),
        (lambda: torch.cholesky_solve(B, A), 2 * 3 * 36),
        (lambda: torch.linalg.det(A), linalg.lu_flops(6, 6) + 5),
        (lambda: torch.linalg.eigh(A), 9 * 6**3),
        (lambda: torch.ops.aten._linalg_eigh(A, compute_v=False), 4 * 6**3 // 3),
        (lambda: torch.ops.aten._linalg_eigvals(A), 10 * 6**3),
        (lambda: torch.ops.aten._linalg_svd(A, compute_uv=False), 4 * 6**3 - 4 * 6**3 // 3),
        (lambda: torch.linalg.svd(A, full_matrices=False), 22 * 6**3),
    ],
)
def test_matrices_of_a_batch(lines, run, flops):
    """Two matrices, each what LAPACK's note says."""
    assert sum(line.total.flops_full for line in _linalg(lines(run))) == 2 * flops


@pytest.mark.parametrize(("mode", "columns"), [("reduced", 4), ("complete", 9), ("r", 0)])
def test_qr_forms_the_columns_that_are_asked_for(lines, mode, columns):
    (line,) = _linalg(lines(lambda: torch.linalg.qr(torch.ones(9, 4), mode=mode)))
    formed = linalg.form_q_flops(9, columns, 4) if columns else 0
    assert line.work.flops_full == linalg.qr_flops(9, 4) + formed


def test_a_pseudo_inverse_multiplies_as_well(lines):
    found = lines(lambda: torch.linalg.pinv(torch.ones(9, 4)))
    assert sum(line.total.flops_full for line in found if line.kind == "matmul") == 2 * 9 * 4 * 4


@pytest.mark.parametrize(
    ("run", "points", "batch", "real"),
    [
        (lambda: torch.fft.fft(torch.zeros(3, 16, dtype=torch.complex64)), 16, 3, False),
        (lambda: torch.fft.rfft(torch.zeros(3, 16)), 16, 3, True),
        (lambda: torch.fft.irfft(torch.zeros(3, 9, dtype=torch.complex64), n=16, norm="forward"), 16, 3, True),
        (lambda: torch.fft.fft2(torch.zeros(3, 8, 4, dtype=torch.complex64)), 32, 3, False),
    ],
)
def test_transforms(lines, run, points, batch, real):
    """5·N·log₂ N, N the product of all transformed sizes; half where one side is real."""
    (line,) = [line for line in lines(run) if line.kind == "fft"]
    assert line.work.flops_full == ops.fourier_transform(batch, points, real=real)[0].work.flops_full
