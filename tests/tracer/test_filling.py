"""Gradients that are zeros with some places filled: one tensor of the input's size, as without a recorder."""

import pytest
import torch

from torchledger.tracer.recorder import Recorder

NUM_BYTES = 64 * 32 * 4

FORWARDS = {
    "gather": lambda x: x.gather(-1, torch.zeros(64, 2, dtype=torch.long)),
    "max": lambda x: x.max(-1)[0],
    "sort": lambda x: x.sort(-1)[0],
    "topk": lambda x: x.topk(2)[0],
    "index": lambda x: x[torch.tensor([1, 1])],
    "index_select": lambda x: x.index_select(0, torch.tensor([0, 2])),
    "masked_select": lambda x: x.masked_select(torch.arange(32) > 3),
    "take": lambda x: x.take(torch.tensor([1, 2])),
    "cummax": lambda x: x.cummax(0)[0],
}


@pytest.mark.parametrize("name", FORWARDS)
def test_the_zeros_are_filled_in_place(name):
    """No second tensor of the input's size beside the zeros, and the gradient is what it is without a recorder."""
    alone = torch.linspace(-1, 1, 64 * 32).view(64, 32).requires_grad_()
    FORWARDS[name](alone).sum().backward()
    x = torch.linspace(-1, 1, 64 * 32).view(64, 32).requires_grad_()
    with Recorder() as recorder:
        FORWARDS[name](x).sum().backward()
    assert torch.equal(x.grad, alone.grad)
    made = [b for b in recorder.trace().timeline.blocks if b.phase == "backward" and b.num_bytes == NUM_BYTES]
    assert len(made) == 1


def test_what_a_user_fills_in_a_backward_of_their_own_stays_out_of_place():
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x[0].clone()

        @staticmethod
        def backward(_, grad):
            return grad.new_zeros(64, 32).index_put([torch.tensor([0])], grad)

    x = torch.ones(64, 32, requires_grad=True)
    with Recorder() as recorder:
        Own.apply(x).sum().backward()
    made = [b for b in recorder.trace().timeline.blocks if b.phase == "backward" and b.num_bytes == NUM_BYTES]
    assert len(made) == 2


def test_a_second_order_step_keeps_its_graph():
    """With gradients of gradients the formula fills a copy, for autograd needs both. (2·3x²)² at 1: 2·6·2·6x = 144."""
    x = torch.ones(64, 32, requires_grad=True)
    with Recorder() as recorder:
        (first,) = torch.autograd.grad((x[torch.tensor([1, 1])] ** 3).sum(), x, create_graph=True)
        (first**2).sum().backward()
    assert recorder.calls
    assert torch.equal(x.grad[1], torch.full((32,), 2 * 6.0 * 2 * 6.0))
