import pytest
import torch
from torch.nn import functional

X = torch.zeros(2, 3, 4, 4)


@pytest.mark.parametrize(
    "run",
    [
        lambda: functional.pad(X, (1, 1, 1, 1)),
        lambda: functional.pad(X, (1, 1, 1, 1), mode="reflect"),
        lambda: functional.unfold(X, 2),
        lambda: functional.pixel_shuffle(torch.zeros(1, 4, 2, 2), 2),
        lambda: X.flip(0),
        lambda: X.roll(1, 0),
        lambda: torch.cat([X, X]),
        lambda: torch.block_diag(torch.zeros(2, 2), torch.zeros(3, 3)),
        lambda: torch._foreach_copy_([X.clone()], [X]),
        lambda: torch.view_as_real_copy(torch.zeros(3, dtype=torch.complex64)),
        lambda: torch.select_scatter(X, torch.ones(3, 4, 4), 0, 1),
    ],
)
def test_what_moves_elements_computes_nothing(lines, run):
    for line in lines(run):
        assert (line.kind, line.work.flops_full) == ("copy", 0)
        assert line.work.bytes_written > 0


@pytest.mark.parametrize("run", [lambda: torch.ones(10).cauchy_(), lambda: torch.bernoulli(torch.ones(10))])
def test_random_numbers_are_bytes(lines, run):
    line = next(line for line in lines(run) if line.kind == "random")
    assert (line.work.flops_full, line.work.bytes_written) == (0, 40)


def test_folding_adds_what_unfolding_copied(lines):
    """Every column's element is added to the pixel that it came from."""
    columns = torch.zeros(1, 3 * 4, 9)
    found = lines(lambda: functional.fold(columns, (4, 4), 2))
    assert sum(line.total.flops_full for line in found) == 3 * 4 * 9


def test_a_reflected_border_goes_back_to_where_it_was(lines):
    x = X.clone().requires_grad_()
    found = lines(lambda: functional.pad(x, (1, 1, 1, 1), mode="reflect").sum().backward())
    assert next(line for line in found if line.op == "fold").work.flops_full == 2 * 3 * 6 * 6


def test_looking_for_nonzero_compares_each(lines):
    found = lines(lambda: torch.ones(10).nonzero())
    assert sum(line.total.flops_full for line in found) == 10
