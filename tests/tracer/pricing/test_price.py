import pytest
import torch
from torch.nn import functional

from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer import Recorder
from torchledger.tracer.pricing import price_of, prices


def _lines(run):
    """Lines of what runs, without those that make data."""
    with Recorder() as recorder:
        run()
    return [line for line in recorder.trace().ledger if line.op not in {"fill", "randn"}]


def _only(run):
    (line,) = _lines(run)
    return line


@pytest.mark.parametrize(
    ("run", "flops"),
    [
        (lambda: torch.mm(torch.zeros(2, 3), torch.zeros(3, 4)), 2 * 2 * 3 * 4),
        (lambda: torch.bmm(torch.zeros(5, 2, 3), torch.zeros(5, 3, 4)), 5 * 2 * 2 * 3 * 4),
        (lambda: torch.mv(torch.zeros(2, 3), torch.zeros(3)), 2 * 2 * 3),
        (lambda: torch.dot(torch.zeros(7), torch.zeros(7)), 2 * 7),
        (lambda: torch.matmul(torch.zeros(5, 1, 2, 3), torch.zeros(6, 3, 4)), 30 * 2 * 2 * 3 * 4),
    ],
)
def test_products(run, flops):
    """2 a multiply-add, whatever the operation is called."""
    assert sum(line.total.flops_full for line in _lines(run) if line.kind == "matmul") == flops


@pytest.mark.parametrize(
    ("run", "bias_flops"),
    [
        (lambda: torch.addmm(torch.zeros(4), torch.zeros(2, 3), torch.zeros(3, 4)), 2 * 4),
        (lambda: torch.baddbmm(torch.zeros(1, 1, 4), torch.zeros(5, 2, 3), torch.zeros(5, 3, 4)), 5 * 2 * 4),
    ],
)
def test_a_bias_is_one_add_an_output_and_no_contraction(run, bias_flops):
    product, bias = _lines(run)
    assert (product.kind, bias.kind, bias.work.flops_full) == ("matmul", "pointwise", bias_flops)


def test_bytes_are_those_of_the_tensors():
    """[2, 3] and [3, 4] read, [2, 4] written, 4 bytes an element."""
    work = _only(lambda: torch.mm(torch.zeros(2, 3), torch.zeros(3, 4))).work
    assert (work.bytes_read, work.bytes_written) == (4 * (6 + 12), 4 * 8)


def test_an_operand_used_twice_is_read_once():
    x = torch.zeros(8)
    assert _only(lambda: x * x).work.bytes_read == 8 * 4


def test_in_place_operations_write_their_operand():
    x, y = torch.zeros(8), torch.zeros(8)
    added, copied = _lines(lambda: (x.add_(y), x.copy_(y)))
    assert (added.work.bytes_read, added.work.bytes_written) == (2 * 32, 32)
    assert (copied.work.bytes_read, copied.work.bytes_written) == (32, 32), "a copy does not read where it writes"


def test_views_and_empty_memory_are_no_work():
    assert _lines(lambda: torch.empty(4, 4).t()[1:].unsqueeze(0).expand(2, 3, 4)) == []


def test_fused_attention_counts_the_square_in_full_and_the_triangle_exactly():
    """4·B·H·T²·d in full; causal pairs T·(T + 1)/2 in the exact count."""
    B, H, T, d = 2, 3, 8, 4
    q = torch.zeros(B, H, T, d)
    lines = _lines(lambda: functional.scaled_dot_product_attention(q, q, q, is_causal=True))
    attention = next(line for line in lines if line.kind == "attention")
    assert attention.work.flops_full == 4 * B * H * T * T * d
    assert attention.work.flops_exact == 4 * B * H * d * T * (T + 1) // 2
    assert next(line for line in lines if line.op == "attention_softmax").kind == "reduction"


@pytest.mark.parametrize(
    ("run", "op", "kind", "flops", "transcendentals"),
    [
        (lambda: torch.zeros(10) + torch.zeros(10), "add", "pointwise", 10, 0),
        (lambda: torch.add(torch.zeros(10), torch.zeros(10), alpha=2), "add_scaled", "pointwise", 20, 0),
        (lambda: torch.zeros(10) ** 2, "square", "pointwise", 10, 0),
        (lambda: torch.zeros(10) ** 3, "cube", "pointwise", 2 * 10, 0),  # PowKernel.cpp: a·a·a
        (lambda: torch.ones(10) ** -2, "inverse_square", "pointwise", 10, 10),  # 1/(a·a)
        (lambda: torch.ones(10) ** 2.5, "pow", "pointwise", 0, 10),
        (lambda: functional.silu(torch.zeros(10)), "silu", "pointwise", 10, 20),
        (lambda: functional.gelu(torch.zeros(10), approximate="tanh"), "gelu_tanh", "pointwise", 80, 10),
        (lambda: torch.zeros(2, 5).sum(-1), "sum", "reduction", 2 * 4, 0),
        (lambda: torch.zeros(2, 5).mean(), "mean", "reduction", 9, 1),
        (lambda: torch.softmax(torch.zeros(2, 4), -1), "softmax", "reduction", 20, 16),
        (lambda: torch.zeros(10).to(torch.bfloat16), "cast", "copy", 0, 0),
        (lambda: torch.zeros(4, 4).t().contiguous(), "copy", "copy", 0, 0),
        (
            lambda: functional.embedding(torch.zeros(3, dtype=torch.int64), torch.zeros(9, 4)),
            "embedding",
            "embedding",
            0,
            0,
        ),
    ],
)
def test_operations_by_name(run, op, kind, flops, transcendentals):
    line = _only(run)
    assert (line.op, line.kind) == (op, kind)
    assert (line.work.flops_full, line.work.transcendentals) == (flops, transcendentals)


def test_a_lookup_reads_the_rows_it_takes_and_not_the_table():
    """3 rows of 4 floats and 3 indices of 8 bytes."""
    line = _only(lambda: functional.embedding(torch.zeros(3, dtype=torch.int64), torch.zeros(1000, 4)))
    assert line.work.bytes_read == 3 * 4 * 4 + 3 * 8


@pytest.mark.parametrize(("implementation", "ops"), [("fused", {"adamw"}), ("foreach", None), ("loop", None)])
def test_adamw_is_the_same_arithmetic_however_it_runs(implementation, ops):
    """Each kernel of the loop and of foreach is counted by element, as the one fused kernel is."""
    parameter = torch.zeros(10, requires_grad=True)
    parameter.grad = torch.zeros(10)
    choice = {"fused": True} if implementation == "fused" else {"foreach": implementation == "foreach"}
    optimizer = torch.optim.AdamW([parameter], **choice)
    optimizer.step()
    with Recorder() as recorder:
        optimizer.step()
    lines = [line for line in recorder.trace().ledger if dict(line.shape).get("elements", 0) >= 10]
    assert {line.kind for line in lines} == {"optimizer"}
    if ops is not None:
        assert {line.op for line in lines} == ops
    # p·(1 - lr·wd) 1, lerp 3, v·β2 1 and addcmul 3, √v and ·/c, + ε 1, addcdiv 2: 11 FLOPs an element.
    assert sum(line.total.flops_full for line in lines) == 11 * 10


def test_an_operation_of_ones_own_is_entered_in_one_line():
    """A price under a name makes the ledger complete."""
    before = _only(lambda: torch.linalg.matrix_exp(torch.eye(3)))
    assert before.kind == "unknown"

    @price_of("linalg_matrix_exp")
    def exponential(seen):
        size = seen.tensor("self").shape[-1]
        return (Piece("matrix_exp", "linalg", Work.of_flops(2 * size**3)),)

    try:
        assert _only(lambda: torch.linalg.matrix_exp(torch.eye(3))).work.flops_full == 2 * 3**3
    finally:
        del prices["linalg_matrix_exp"]
