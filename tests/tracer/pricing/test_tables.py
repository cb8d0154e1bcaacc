import pytest
import torch
from torch.nn import functional

TABLE = torch.zeros(100, 8)
HALF = TABLE.to(torch.bfloat16)
I5 = torch.zeros(5, dtype=torch.int64)


@pytest.mark.parametrize(
    ("run", "read", "written"),
    [
        (lambda: TABLE.index_select(0, I5), 5 * 8 * 4 + 5 * 8, 5 * 8 * 4),
        (lambda: HALF.index_select(0, I5.int()), 5 * 8 * 2 + 5 * 4, 5 * 8 * 2),
        (lambda: TABLE[I5], 5 * 8 * 4 + 5 * 8, 5 * 8 * 4),
        (lambda: TABLE.gather(0, torch.zeros(5, 8, dtype=torch.int64)), 40 * 4 + 40 * 8, 40 * 4),
        (lambda: TABLE.index_add_(0, I5, torch.ones(5, 8)), 40 * 4 + 40 + 40 * 4, 40 * 4),
        (lambda: TABLE.index_copy_(0, I5, torch.ones(5, 8)), 40 * 4 + 40, 40 * 4),
        (lambda: TABLE.index_fill_(0, I5, 1.0), 40, 40 * 4),
        (lambda: TABLE.scatter_(0, torch.zeros(5, 8, dtype=torch.int64), 1.0), 40 * 8, 40 * 4),
        (lambda: TABLE.index_add(0, I5, torch.ones(5, 8)), 40 * 4 + 40 + 800 * 4, 800 * 4),
        (lambda: TABLE.index_put_((I5,), torch.ones(8)), 8 * 4 + 40, 40 * 4),
    ],
)
def test_a_lookup_moves_what_it_touches(lines, run, read, written):
    """Indices, the elements they pick, and the elements that are there where something is added to them."""
    line = next(line for line in lines(run) if line.kind == "gather")
    assert (line.work.bytes_read, line.work.bytes_written) == (read, written)


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: TABLE.index_add_(0, I5, torch.ones(5, 8)), 40),
        (lambda: TABLE.index_add_(0, I5, torch.ones(5, 8), alpha=2), 80),
        (lambda: TABLE.scatter_add_(0, torch.zeros(5, 8, dtype=torch.int64), torch.ones(5, 8)), 40),
        (lambda: TABLE.scatter_(0, torch.zeros(5, 8, dtype=torch.int64), torch.ones(5, 8)), 0),
        (lambda: TABLE.index_put_((I5,), torch.ones(5, 8), accumulate=True), 40),
        (lambda: TABLE.index_put_((I5,), torch.ones(5, 8)), 0),
        (
            lambda: TABLE.index_put_(
                (I5[:, None], torch.zeros(3, dtype=torch.int64)), torch.ones(5, 3), accumulate=True
            ),
            15,
        ),
    ],
)
def test_only_what_is_added_is_work(lines, run, flops):
    """Writing is a copy."""
    assert sum(line.total.flops_full for line in lines(run) if line.kind == "gather") == flops


@pytest.mark.parametrize(("mode", "flops", "divisions"), [("sum", 6 * 8, 0), ("mean", 6 * 8, 4 * 8), ("max", 6 * 8, 0)])
def test_bags(lines, mode, flops, divisions):
    """10 rows in 4 bags take 6 adds an element, backward one a row (a mean's, divided first)."""
    table = torch.zeros(100, 8, requires_grad=True)
    run = lambda: functional.embedding_bag(torch.arange(10), table, torch.tensor([0, 2, 5, 7]), mode=mode)  # noqa: E731
    line = next(line for line in lines(run) if line.op == "embedding_bag")
    assert (line.work.flops_full, line.work.transcendentals) == (flops, divisions)
    assert line.work.bytes_written == 4 * 8 * 4
    backward = next(line for line in lines(lambda: run().sum().backward()) if line.op == "embedding_bag_backward")
    assert (backward.gradient_of, backward.work.flops_full) == ("weight", {"sum": 80, "mean": 160, "max": 32}[mode])
