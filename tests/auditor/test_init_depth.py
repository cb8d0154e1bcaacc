import pytest
import torch
from torch import nn

from torchledger.auditor.init_depth import rate, stacks
from torchledger.auditor.init_signals import look
from torchledger.auditor.subject import Subject


def _stacks(model, x):
    signals = look(Subject("model", model, (x,), loss=lambda out, _: out.square().sum()))
    return stacks(signals, sum(p.numel() for p in model.parameters()))


def _scaled(width, factor):
    layer = nn.Linear(width, width, bias=False)
    with torch.no_grad():
        layer.weight.copy_(factor * torch.eye(width))
    return layer


def test_growth_is_what_the_layers_do():
    """Four layers that double make a signal 16 times as large; the gradient at the first is 2³ times the last one's."""
    (stack,) = _stacks(nn.Sequential(*(_scaled(8, 2.0) for _ in range(4))), torch.randn(5, 8))
    assert (stack.num_layers, stack.forward, stack.backward) == (4, pytest.approx(16), pytest.approx(8))
    assert stack.forward_steps == pytest.approx((2, 2, 2, 2))
    assert stack.backward_steps == pytest.approx((2, 2, 2))


def test_a_head_does_not_count_as_a_layer():
    """The last layer, of another size, is a level and no part of the growth."""
    model = nn.Sequential(*(_scaled(8, 2.0) for _ in range(3)), nn.Linear(8, 3))
    (stack,) = _stacks(model, torch.randn(5, 8))
    assert len(stack.levels) == 5
    assert (stack.num_layers, stack.forward) == (3, pytest.approx(8))


def test_one_layer_unlike_the_others_does_not_decide_the_rate():
    """The rate is the median."""
    assert rate((80.0, 2.0, 2.0)) == 2
    assert rate(()) is None


def test_blocks_are_one_stack_and_what_lies_within_them_is_none():
    """Layers of an encoder are its depth; their own linear layers are not."""
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0, batch_first=True)
    (stack,) = _stacks(nn.TransformerEncoder(layer, 3), torch.randn(2, 5, 16))
    assert [level.place for level in stack.levels[1:]] == ["layers.0", "layers.1", "layers.2"]


def test_a_layer_that_is_called_three_times_is_three_deep():
    """Shared weights are depth all the same."""

    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([_scaled(8, 3.0)])

        def forward(self, x):
            for _ in range(3):
                x = self.layers[0](x)
            return x

    (stack,) = _stacks(Shared(), torch.randn(5, 8))
    assert stack.forward == pytest.approx(27)


def test_a_model_without_modules_is_the_products_that_it_runs():
    """Bare parameters in a loop are followed by their matmuls; gradients between them nobody sees."""

    class Bare(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(2 * torch.eye(8)) for _ in range(3)])

        def forward(self, x):
            for weight in self.weights:
                x = x @ weight
            return x

    (stack,) = _stacks(Bare(), torch.randn(5, 8))
    assert (stack.is_chain, stack.forward, stack.backward) == (True, pytest.approx(8), None)
