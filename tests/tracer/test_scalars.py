import pytest
import torch
from torch.utils.checkpoint import checkpoint

from torchledger.tracer import Recorder, trace_step


def _numbers(run):
    with Recorder() as recorder:
        run()
    timeline = recorder.trace().timeline
    return timeline, [block for block in timeline.blocks if block.op == "wrapped_number"]


def _leaf():
    return torch.zeros(4, requires_grad=True)


@pytest.mark.parametrize(("operation", "size"), [(lambda x: x * 0.5, 8), (lambda x: x / 2, 8), (lambda x: x * True, 1)])
def test_a_number_that_autograd_saves_is_kept_until_its_gradient(operation, size):
    """A float or int is wrapped in 8 bytes, a boolean in 1, from the product to the end of its backward."""
    timeline, (number,) = _numbers(lambda: operation(_leaf()).sum().backward())
    assert number.num_bytes == size
    assert number.part == "activations"
    assert number.freed is not None
    assert number.freed >= timeline.call_positions[-1]


@pytest.mark.parametrize(
    "operation",
    [
        lambda: _leaf() + 1.0,
        lambda: _leaf() * torch.ones(4),
        lambda: torch.zeros(4) * 2.0,
        torch.no_grad()(lambda: _leaf() * 2.0),
    ],
    ids=["a sum saves nothing", "a tensor is no number", "no gradient is wanted", "gradients are off"],
)
def test_other_numbers_are_gone_at_once(operation):
    assert _numbers(operation)[1] == []


def test_checkpointing_keeps_the_number_and_makes_it_again():
    """The forward's number lives on, the recomputed one dies before the gradient is made."""

    def run():
        checkpoint(lambda x: (x * 3.0).exp(), _leaf(), use_reentrant=False).sum().backward()

    timeline, (kept, again) = _numbers(run)
    assert (kept.phase, again.phase) == ("forward", "recompute")
    assert kept.allocated < again.allocated < again.freed < kept.freed
    assert timeline.peak().peak_bytes > 0


def test_a_number_is_gone_before_what_runs_again_for_the_next_node():
    """Half of cos(w · sin(x)): the gradient of the half has run when that of the cosine asks for what is made again."""
    w = _leaf()

    def run():
        again = checkpoint(lambda x: (x.sin() * w).cos(), _leaf(), use_reentrant=False, preserve_rng_state=False)
        (again * 0.5).sum().backward()

    timeline, (number,) = _numbers(run)
    again = [block for block in timeline.blocks if block.phase == "recompute"]
    assert again
    assert number.freed is not None
    assert number.freed < min(block.allocated for block in again)


def test_a_backward_operation_is_replayed_with_the_saved_tensor():
    """In the backward pass nothing wraps the number again: the signature has a tensor in its place."""
    with Recorder() as recorder:
        (_leaf() * 0.5).sum().backward()
    products = [call.signature for call in recorder.trace().calls if call.signature.op == "aten.mul.Tensor"]
    assert products[0].args[1] == 0.5
    assert (products[1].args[1].shape, products[1].args[1].dtype) == ((), torch.float64)


@pytest.mark.parametrize(("target", "on_host"), [("cpu", {False}), ("cuda", {True})])
def test_on_an_accelerator_saved_numbers_stay_on_the_host(target, on_host):
    """PyTorch makes a wrapped number on the CPU, wherever the tensor is that it divides."""

    def build():
        x = torch.ones(4, 4, requires_grad=True)
        return lambda: (x / 3.0).sum().backward()

    blocks = trace_step(build, target=target).timeline.blocks
    assert {block.on_host for block in blocks if block.op == "wrapped_number"} == on_host
