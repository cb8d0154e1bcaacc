import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger import ops

N, C, H = 3, 4, 5


def _leaf(*shape):
    return torch.zeros(*shape, requires_grad=True)


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_is_counted_by_channel(only, training):
    """A channel has batch x positions elements."""
    norm = nn.BatchNorm2d(C).train(training)
    norm.num_batches_tracked = None  # its count is another line
    line = only(lambda: norm(torch.zeros(N, C, H, H)))
    assert line.kind == "normalization"
    assert line.work.flops_full == ops.batch_norm(C, N * H * H, training=training)[0].work.flops_full


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_backward_has_a_line_for_input_and_weight(backward, training):
    norm = nn.BatchNorm2d(C).train(training)
    lines = backward(lambda: norm(_leaf(N, C, H, H)))
    expected = ops.batch_norm_backward(C, N * H * H, training=training)
    assert [line.work.flops_full for line in lines] == [piece.work.flops_full for piece in expected]
    assert [line.gradient_of for line in lines] == ["input", "weight"]


def test_a_frozen_norm_makes_no_gradient_of_its_weight(backward):
    norm = nn.BatchNorm2d(C).requires_grad_(False)
    assert [line.gradient_of for line in backward(lambda: norm(_leaf(N, C, H, H)))] == ["input"]


def test_group_norm(only, backward):
    norm = nn.GroupNorm(2, C)
    flops = ops.group_norm(N, C, H * H, 2)[0].work.flops_full
    assert only(lambda: norm(torch.zeros(N, C, H, H))).work.flops_full == flops
    expected = [piece.work.flops_full for piece in ops.group_norm_backward(N, C, H * H, 2)]
    assert [line.work.flops_full for line in backward(lambda: norm(_leaf(N, C, H, H)))] == expected


def test_instance_norm_is_a_batch_norm_of_every_sample(lines):
    found = lines(lambda: functional.instance_norm(torch.zeros(N, C, H, H)))
    norm = next(line for line in found if line.op == "batch_norm")
    expected = ops.batch_norm(N * C, H * H, affine=False, running=False)[0].work.flops_full
    assert norm.work.flops_full == expected


def test_a_weight_is_normalized_by_row(lines):
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(6, C, bias=False))
    found = lines(lambda: linear(torch.zeros(2, 6)))
    assert next(line for line in found if line.op == "weight_norm").work.flops_full == C * (3 * 6 - 1)


def test_renorm_and_rows_of_a_table(lines, only):
    assert only(lambda: torch.renorm(torch.zeros(4, 6), 2, 0, 1.0)).work.flops_full == 4 * (3 * 6 + 1)
    table, indices = torch.zeros(100, 6), torch.zeros(5, dtype=torch.int64)
    found = lines(lambda: functional.embedding(indices, table, max_norm=1.0))
    row = next(line for line in found if line.op == "renorm")
    assert (row.work.flops_full, row.work.bytes_written) == (5 * (3 * 6 + 1), 5 * 6 * 4)
