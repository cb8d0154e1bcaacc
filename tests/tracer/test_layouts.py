import pytest
import torch
from torch import nn

from torchledger.tracer import trace
from torchledger.tracer.layouts import held, results_of


def test_a_plain_tensor_holds_itself():
    x = torch.zeros(2)
    assert held(x)[0] is x
    assert [tensor.shape for tensor in results_of([x, (x, None)])] == [(2,), (2,)]


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_hold_indices_and_values():
    """Three nonzeros of a 4x4: COO has [2, 3] indices, CSR 5 row starts and 3 columns, both 3 values."""
    dense = torch.eye(4)[:, :3] @ torch.eye(4)[:3]
    assert [tuple(t.shape) for t in held(dense.to_sparse())] == [(2, 3), (3,)]
    assert [tuple(t.shape) for t in held(dense.to_sparse_csr())] == [(5,), (3,), (3,)]


def test_a_sparse_gradient_is_in_the_timeline():
    """An embedding with sparse gradients keeps 4 rows of 8 floats and their indices, not the table of 1000 rows."""
    model = nn.Embedding(1000, 8, sparse=True)
    seen = trace(model, torch.zeros(4, dtype=torch.int64), loss=lambda y, _: y.square().sum())
    gradients = {block.num_bytes for block in seen.timeline.blocks if block.part == "gradients"} - {0}
    assert gradients == {4 * 8 * 4, 4 * 8}
    assert not any(block.num_bytes == 1000 * 8 * 4 for block in seen.timeline.blocks if block.part != "parameters")
