import pytest
import torch
from torch import nn

from torchledger.tracer import Recorder, trace, trace_step
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


def _sparse_step():
    table, head = nn.Embedding(200, 16, sparse=True), nn.Linear(16, 4)
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    ids = torch.arange(32).view(4, 8)

    def step():
        head(table(ids)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def test_a_sparse_gradient_keeps_its_rows_on_fake_tensors_too():
    """32 looked up rows of 16, indices of 8 bytes: in memory, in bytes, and as adds of the optimizer."""
    fake = trace_step(_sparse_step)
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = _sparse_step()
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    real = recorder.trace(since="step 2")
    assert fake.ledger.is_complete
    assert fake.ledger.lines == real.ledger.lines
    assert fake.timeline.blocks == real.timeline.blocks
    rows = [block for block in fake.timeline.blocks if block.part == "gradients" and block.call >= fake.first_call]
    assert {32 * 16 * 4, 32 * 8} <= {block.num_bytes for block in rows}
    (update,) = fake.ledger.where(lambda line: line.phase == "optimizer" and line.work.flops_full == 2 * 32 * 16)
    assert update.work.bytes_written == 32 * 16 * 4
