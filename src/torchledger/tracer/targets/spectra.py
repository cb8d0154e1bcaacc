"""Eigenvalues and singular values alone, without vectors where no gradient needs them.

Their composites in C++ make the vectors too for any tensor that Python watches (`_may_require_fw_or_bw_grad` of
aten/src/ATen/native/BatchLinearAlgebra.cpp), because it cannot tell what may be differentiated. A real run makes none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from torchledger.tracer.targets.cuda.replacing import operation_replaced

_EIGH: Any = torch.ops.aten._linalg_eigh.default  # noqa: SLF001  # their names begin so
_SVD: Any = torch.ops.aten._linalg_svd.default  # noqa: SLF001  # as above
_EIGVALS: Any = torch.ops.aten._linalg_eigvals.default  # noqa: SLF001  # as above
_EIG: Any = torch.ops.aten.linalg_eig.default


@contextlib.contextmanager
def values_without_vectors() -> Iterator[None]:
    """While this is on, `eigvalsh`, `svdvals` and `eigvals` make vectors for a gradient only."""
    with (
        operation_replaced("linalg_eigvalsh", _eigvalsh),
        operation_replaced("linalg_svdvals", _svdvals),
        operation_replaced("linalg_eigvals", _eigvals),
    ):
        yield


def _eigvalsh(matrix: torch.Tensor, UPLO: str = "L") -> torch.Tensor:  # the schema's name
    return _EIGH(matrix, UPLO, _is_differentiated(matrix))[0]  # type: ignore[no-any-return]  # an operation has no types


def _svdvals(matrix: torch.Tensor, *, driver: str | None = None) -> torch.Tensor:
    return _SVD(matrix, False, _is_differentiated(matrix), driver=driver)[1]  # type: ignore[no-any-return]  # as above


def _eigvals(matrix: torch.Tensor) -> torch.Tensor:
    return _EIG(matrix)[0] if _is_differentiated(matrix) else _EIGVALS(matrix)  # type: ignore[no-any-return]  # as above


def _is_differentiated(matrix: torch.Tensor) -> bool:
    return torch.is_grad_enabled() and matrix.requires_grad
