import pytest
import torch

from torchledger.ops.selection import sort_compares

X = torch.zeros(3, 8)


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: X.sort(1), 3 * sort_compares(8)),
        (X.median, sort_compares(24)),
        (lambda: X.kthvalue(2, 1), 3 * sort_compares(8)),
        (lambda: X.mode(1), 3 * (sort_compares(8) + 7)),
        (lambda: X.topk(2), 24 * 2),
        (lambda: torch.searchsorted(torch.zeros(7), X), 24 * 3),
        (lambda: torch.bucketize(X, torch.zeros(7)), 24 * 3),
        (lambda: torch.isin(X, torch.zeros(5)), 24 * 5),
        (lambda: torch.histc(X, 4, 0, 1), 24 * 5),
        (lambda: torch.histc(X, 4), 24 * 5 + 2 * 23),
        (lambda: torch.unique(X), sort_compares(24) + 23),
        (lambda: torch.bincount(torch.zeros(9, dtype=torch.int64), torch.ones(9)), 9),
    ],
)
def test_order(lines, run, flops):
    """A sort of n is n⌈log₂n⌉ - 2^⌈log₂n⌉ + 1 compares, a search ⌈log₂(n + 1)⌉."""
    assert sum(line.total.flops_full for line in lines(run)) == flops


def test_integers_in_order_are_bytes(only):
    line = only(lambda: torch.zeros(8, dtype=torch.int64).sort())
    assert (line.work.flops_full, line.work.bytes_read, line.work.bytes_written) == (0, 64, 128)
