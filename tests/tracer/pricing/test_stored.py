import torch
from torch import nn


def _trained(optimizer, **options):
    embedding = nn.Embedding(50, 8, sparse=True)
    stepping = optimizer(embedding.parameters(), **options)
    embedding(torch.tensor([1, 2, 3, 3])).sum().backward()
    return stepping


def test_a_sparse_gradient_costs_the_rows_it_has(lines):
    """The step p - lr·g on 4 rows of 8, of a table of 50."""
    stepping = _trained(torch.optim.SGD, lr=0.1)
    (line,) = lines(stepping.step)
    assert line.work.flops_full == 2 * 4 * 8
    assert (line.work.bytes_read, line.work.bytes_written) == (2 * 32 * 4 + 4 * 8, 32 * 4)


def test_sparse_adam_is_complete_and_merges_a_row_that_comes_twice(lines):
    """Row 3 twice: 8 adds, then every operation works on 3 rows."""
    stepping = _trained(torch.optim.SparseAdam)
    found = lines(stepping.step)
    assert all(line.work.flops_full is not None for line in found)
    assert next(line for line in found if line.op == "coalesce").work.flops_full == 8
    assert max(dict(line.shape).get("elements", 0) for line in found if line.work.transcendentals) == 3 * 8


def test_sums_of_stored_values(lines):
    stored = torch.eye(5).to_sparse_coo()
    assert sum(line.total.flops_full for line in lines(lambda: torch.sparse.sum(stored))) == 4
