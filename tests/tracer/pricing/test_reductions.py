import pytest
import torch

X = torch.ones(2, 5)


@pytest.mark.parametrize(
    ("run", "flops", "transcendentals"),
    [
        (lambda: X.sum(1), 2 * 4, 0),
        (lambda: X.prod(1), 2 * 4, 0),
        (lambda: X.mean(1), 2 * 4, 2),
        (lambda: torch.var_mean(X, 1), 2 * (4 * 5 - 2), 2 * 2),
        (lambda: X.std(1), 2 * (4 * 5 - 2), 2 * 3),
        (lambda: X.aminmax(dim=1), 2 * 2 * 4, 0),
        (lambda: torch.linalg.vector_norm(X, 2, 1), 2 * (2 * 5 - 1), 2),
        (lambda: torch.linalg.vector_norm(X, 1, 1), 2 * (2 * 5 - 1), 0),
        (lambda: torch.linalg.vector_norm(X, 3, 1), 2 * (2 * 5 - 1), 2 * 5 + 2),
        (lambda: X.cumsum(1), 2 * 4, 0),
        (lambda: X.cummax(1), 2 * 4, 0),
        (lambda: X.logcumsumexp(1), 2 * 4 * 4, 2 * 4 * 2),
        (lambda: torch.logsumexp(X, 1), 2 * (3 * 5 - 1), 2 * (5 + 1)),
        (lambda: torch.maximum(X, X), 10, 0),
        (lambda: torch.zeros(3, 3).trace(), 2, 0),
        (lambda: torch.dist(X, X + 0), 10 + 2 * 10 - 1 + 10, 1),
        (lambda: torch.equal(X, X), 10, 0),
    ],
)
def test_rows_to_values(lines, run, flops, transcendentals):
    """A sum of n takes n - 1 adds; 10 elements in 2 rows."""
    found = lines(run)
    assert sum(line.total.flops_full for line in found) == flops
    assert sum(line.total.transcendentals for line in found) == transcendentals


def test_complex_numbers_are_added_in_two(only):
    assert only(lambda: torch.zeros(2, 5, dtype=torch.complex64).sum(1)).work.flops_full == 2 * 2 * 4


def test_a_sum_of_nothing_takes_no_add(only):
    assert only(lambda: torch.zeros(3, 0).sum(1)).work.flops_full == 0


def test_norms_of_a_list(only):
    tensors = [torch.ones(4), torch.ones(6)]
    line = only(lambda: torch._foreach_norm(tensors))
    assert (line.work.flops_full, line.work.transcendentals) == (2 * 10 - 2, 2)
    assert only(lambda: torch._foreach_max(tensors)).work.flops_full == 3 + 5
