import pytest
import torch
from torch.nn import functional

pytest.importorskip("torch.nn.modules.linear_cross_entropy")
N, F, V = 6, 8, 20


def _contractions(lines, x, weight, **options):
    target = torch.zeros(N, dtype=torch.int64)
    found = lines(lambda: functional.linear_cross_entropy(x, weight, target, **options).sum().backward())
    return sum(line.total.flops_full for line in found if line.kind == "matmul"), found


@pytest.mark.parametrize("trained", [True, False])
def test_logits_and_two_gradients_are_three_products(lines, trained):
    """2·N·F·V each; a frozen weight saves one, however the loss runs."""
    x, weight = torch.randn(N, F, requires_grad=True), torch.randn(V, F, requires_grad=trained)
    flops, found = _contractions(lines, x, weight)
    assert flops == (3 if trained else 2) * 2 * N * F * V
    assert all(line.work.flops_full is not None for line in found)


def test_chunks_run_as_one_operation(lines):
    """The custom operation that a chunked loss is."""
    x, weight = torch.randn(N, F, requires_grad=True), torch.randn(V, F, requires_grad=True)
    arguments = (x, weight, torch.zeros(N, dtype=torch.int64), None, None, "mean", -100, 0.0, 2, "compact")
    operation = torch.ops.torch_nn._linear_cross_entropy_batch_chunked
    found = lines(lambda: operation(*arguments, torch.float32, False, True, True, False))
    products = [line for line in found if line.kind == "matmul"]
    assert [line.gradient_of for line in products if line.op != "bias"] == ["none", "input", "weight"]
    assert sum(line.total.flops_full for line in products) == 3 * 2 * N * F * V
