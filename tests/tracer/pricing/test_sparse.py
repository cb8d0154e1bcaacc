"""Products with sparse matrices: stored values count, in whichever place they stand."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer import Recorder, trace


def _matrix():
    dense = torch.zeros(8, 6)
    dense[0, 1], dense[3, 2], dense[7, 5] = 1.0, 2.0, 3.0
    return dense


def _product(run):
    with Recorder() as recorder:
        run()
    (line,) = recorder.trace().ledger.where(kind="matmul")
    return line


@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_products_of_a_stored_matrix():
    """3 values with 4 columns, with one, added to something, and at the places of another."""
    coo, csr = _matrix().to_sparse(), _matrix().to_sparse_csr()
    for run, columns in [
        (lambda: torch.sparse.mm(coo, torch.zeros(6, 4)), 4),
        (lambda: coo @ torch.zeros(6), 1),
        (lambda: torch.sparse.addmm(torch.zeros(8, 4), coo, torch.zeros(6, 4)), 4),
        (lambda: csr @ torch.zeros(6, 4), 4),
        (lambda: torch.sparse.sampled_addmm(csr, torch.zeros(8, 5), torch.zeros(5, 6)), 5),
    ]:
        assert _product(run).work.flops_full == 2 * 3 * columns


def test_two_sparse_matrices_meet_at_places_that_only_data_tells():
    """At most every stored value of one with every column of the other."""
    line = _product(lambda: torch.sparse.mm(_matrix().to_sparse(), _matrix().t().to_sparse()))
    assert line.work.flops_full is None
    assert dict(line.shape)["at_most_flops"] == 2 * min(3 * 8, 3 * 8)


@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_a_traced_step_knows_how_much_the_users_matrix_stores():
    """The matrix is a fake in the step; the real one was asked before."""

    class Graph(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(6, 4))

        def forward(self, x):
            return torch.sparse.mm(x, self.weight)

    ledger = trace(Graph(), _matrix().to_sparse(), loss=lambda y, _: y.sum()).ledger.where(phase="forward")
    assert ledger.flops == 2 * 3 * 4


@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_a_matrix_that_is_made_in_the_step_has_a_bound():
    """How many of its elements are not zero is data: at most all of them."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        torch.sparse.mm(torch.zeros(8, 6).to_sparse(), torch.zeros(6, 4))
    (line,) = recorder.trace().ledger.where(kind="matmul")
    assert (line.work.flops_full, dict(line.shape)["at_most_flops"]) == (None, 2 * 8 * 6 * 4)
