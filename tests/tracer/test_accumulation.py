"""A gradient that is gathered from several uses is added up where autograd's engine would add it up without us."""

import pytest
import torch
from torch import nn

from torchledger.meter import allocations
from torchledger.tracer import Recorder, trace_step


def _products(x):
    """Each use's gradient is a product of its own: all sums are in place."""
    return sum((x @ torch.ones(32, 32)).sum() for _ in range(3))


def _selected(x):
    """Each use's gradient is a tensor of zeros with one row: as Mamba's scan, in place."""
    return sum((x[row] * 2.0).sum() for row in range(8))


def _residual(x):
    """The sum's gradient is the product's as well, so that the engine does not hold it alone: out of place."""
    return (x + x @ torch.ones(32, 32)).sum()


def _views(x):
    """Two views of one gradient share its memory: out of place."""
    return (x.view(16, 64) * 2.0).sum() + (x.view(16, 64) * 3.0).sum()


def _additions(of, *, fake):
    def step():
        x = torch.zeros(32, 32, requires_grad=True)
        of(x * 1.0).backward()

    if fake:
        calls = trace_step(lambda: step, steps=1).calls
    else:
        with Recorder() as recorder:
            step()
        calls = recorder.trace().calls
    names = {"aten.add.Tensor", "aten.add_.Tensor"}
    shape = (32, 32)
    return [
        call.signature.op
        for call in calls
        if call.phase == "backward" and call.signature.op in names and call.signature.tensors()[0].shape == shape
    ]


@pytest.mark.parametrize("fake", [True, False])
@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (_products, ["aten.add_.Tensor"] * 2),
        (_selected, ["aten.add_.Tensor"] * 7),
        (_residual, ["aten.add.Tensor"]),
        (_views, ["aten.add.Tensor"]),
    ],
)
def test_the_engine_adds_in_place_what_it_holds_alone(of, expected, fake):
    """Uses are one more than sums: in place but for those whose first gradient is held elsewhere too."""
    assert _additions(of, fake=fake) == expected


@pytest.mark.parametrize("of", [_products, _selected, _residual, _views])
def test_the_peak_is_the_allocators(of):
    """What is traced to be in place takes no memory in the allocator either."""

    def step():
        x = torch.zeros(32, 32, requires_grad=True)
        of(x * 1.0).backward()

    step()
    traced = trace_step(lambda: step, steps=1).peak().peak_bytes
    assert traced == allocations(step).peak_bytes


def test_the_gradient_is_right():
    """On real tensors the sum in place is the sum."""
    x = torch.randn(32, 32, requires_grad=True)
    _selected(x * 1.0).backward()
    plain, x.grad = x.grad, None
    with Recorder():
        _selected(x * 1.0).backward()
    assert torch.equal(plain, x.grad)


def test_what_a_users_own_backward_adds_is_the_users():
    """A function's backward that adds two tensors makes a third."""

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(_context, x):
            return x * 2.0

        @staticmethod
        def backward(_context, gradient):
            return gradient.clone() + gradient.clone()

    assert _additions(lambda x: Doubled.apply(x).sum(), fake=True) == ["aten.add.Tensor"]


def test_a_backward_that_wants_its_own_gradient_adds_out_of_place():
    """With create_graph the sums are part of the graph."""
    linear = nn.Linear(4, 4)

    def step():
        x = torch.zeros(4, 4, requires_grad=True)
        (gradient,) = torch.autograd.grad((linear(x) * x + x * x).sum(), x, create_graph=True)
        gradient.sum().backward()

    with Recorder() as recorder:
        step()
    operations = [call.signature.op for call in recorder.trace().calls]
    assert "aten.add.Tensor" in operations


def test_a_tensor_of_numbers_is_memory_even_if_unused():
    """torch.tensor makes 8 bytes an integer, seen whether an operation uses it or not."""

    def step():
        kept.append(torch.tensor([1, 2, 3]))

    kept = []
    blocks = trace_step(lambda: step, steps=1).timeline.blocks
    assert [block.num_bytes for block in blocks] == [3 * 8]
