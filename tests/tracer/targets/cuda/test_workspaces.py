"""Sizes of aten/src/ATen/cuda/CublasHandlePool.cpp, and two of them in a process that trains, as GPU snapshots show."""

import pytest
import torch
from torch import nn

from torchledger.tracer import trace_step


def _workspaces(build, chip="A100 SXM 80GB", steps=2):
    blocks = trace_step(build, steps=steps, target="cuda", chip=chip).timeline.blocks
    return [(block.num_bytes, block.phase) for block in blocks if block.part == "workspace"]


def _training():
    model, x = nn.Linear(8, 8), torch.ones(2, 8)
    return lambda: model(x).sum().backward()


@pytest.mark.parametrize(
    ("chip", "num_bytes"),
    [
        ("A100 SXM 80GB", 2 * 4096 * 1024 + 8 * 16 * 1024),
        ("H100 SXM", 4096 * 8 * 1024),
        ("B200 SXM", 4096 * 8 * 1024),
        ("L4", 2 * 4096 * 1024 + 8 * 16 * 1024),
    ],
)
def test_training_keeps_two(chip, num_bytes):
    """One of the thread that runs the forward pass, one of the autograd engine's; steps later there are no more."""
    assert _workspaces(_training, chip) == [(num_bytes, "forward"), (num_bytes, "backward")]


def test_inference_keeps_one():
    """Without a backward pass there is one handle."""

    def build():
        model, x = nn.Linear(8, 8), torch.ones(2, 8)

        def step():
            with torch.no_grad():
                return model(x)

        return step

    assert len(_workspaces(build)) == 1


def test_a_stream_has_its_own():
    """A product on another stream has another workspace."""

    def build():
        side, x = torch.cuda.Stream(), torch.ones(2, 2)

        def step():
            first = x @ x
            with torch.cuda.stream(side):
                return first, x @ x

        return step

    assert len(_workspaces(build)) == 2


def test_no_product_no_workspace():
    """A step without a product needs none, and the CPU none at all."""
    assert _workspaces(lambda: lambda: torch.ones(2, 2).exp()) == []
    blocks = trace_step(_training, steps=1).timeline.blocks
    assert not any(block.part == "workspace" for block in blocks)
