"""Eigenvalues and singular values without vectors."""

import pytest
import torch

from torchledger.ops.linalg import factorizations
from torchledger.tracer import Recorder, trace_step

N = 6
CASES = {
    "eigvalsh": (torch.linalg.eigvalsh, "symmetric_eigenvalues", "symmetric_eigenvectors"),
    "svdvals": (torch.linalg.svdvals, "singular_values", "svd"),
    "eigvals": (torch.linalg.eigvals, "eigenvalues", "eigenvectors"),
}


def _flops(function, *, gradient, target="cpu"):
    def step():
        matrix = torch.rand(N, N, requires_grad=gradient)
        function(matrix)

    ledger = trace_step(lambda: step, steps=1, target=target).ledger
    names = {values for _, *both in CASES.values() for values in both}
    return sum(line.work.flops_full * line.times for line in ledger if line.op in names)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_vectors_are_made_for_a_gradient_only(name, target):
    """Without a gradient the cheaper algorithm runs, with one the vectors that the gradient needs are made."""
    function, values, vectors = CASES[name]
    assert _flops(function, gradient=False, target=target) == factorizations[values](N, N, 0)
    assert _flops(function, gradient=True, target=target) == factorizations[vectors](N, N, 0)


@pytest.mark.parametrize("name", CASES)
def test_the_values_are_torchs_own(name):
    """On real tensors as well, in inference mode too, and nothing stays behind."""
    function, matrix = CASES[name][0], torch.rand(N, N)
    expected = function(matrix)
    with Recorder(), torch.inference_mode():
        assert torch.equal(function(matrix), expected)
    assert torch.equal(function(matrix), expected)
