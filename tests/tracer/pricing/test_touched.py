import torch
from torch.nn import functional


def test_a_given_result_is_not_read(only):
    x, out = torch.zeros(8), torch.empty(8)
    line = only(lambda: torch.neg(x, out=out))
    assert (line.work.bytes_read, line.work.bytes_written) == (32, 32)


def test_a_part_taken_from_elsewhere_is_not_read(only):
    """A copy of [4, 8] with one row of another: 3 rows and the other are read."""
    row = torch.zeros(8)
    whole = torch.zeros(4, 8)
    line = only(lambda: torch.select_scatter(whole, row, 0, 1))
    assert (line.work.bytes_read, line.work.bytes_written) == (4 * 8 * 4, 4 * 8 * 4)


def test_an_expanded_operand_is_read_once(only):
    wide = torch.zeros(1, 8).expand(100, 8)
    assert only(wide.exp).work.bytes_read == 8 * 4


def test_training_reads_what_it_saved_and_evaluation_what_runs(lines):
    """Gradient and image, mean and deviation of the batch, weight; never both kinds of statistics."""
    x = torch.zeros(4, 3, 2, 2, requires_grad=True)
    norm = torch.nn.BatchNorm2d(3)
    for training in (True, False):
        norm.train(training)
        weights = torch.ones(4, 3, 2, 2)
        found = lines(lambda weights=weights: (norm(x) * weights).sum().backward())
        first = next(line for line in found if line.op == "batch_norm_backward")
        assert first.work.bytes_read == 4 * (48 + 48 + 3 + 3 + 3)


def test_layer_norm_backward_asks_only_whether_there_is_a_bias(lines):
    x = torch.zeros(4, 8, requires_grad=True)
    weight, bias, weights = torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True), torch.ones(4, 8)
    found = lines(lambda: (functional.layer_norm(x, (8,), weight, bias) * weights).sum().backward())
    first = next(line for line in found if line.op == "layer_norm_backward")
    assert first.work.bytes_read == 4 * (32 + 32 + 4 + 4 + 8)
