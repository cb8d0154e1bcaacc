import pytest
import torch
from torch import nn

from torchledger.tracer import Recorder, trace, trace_step


def test_parameters_that_no_module_owns_are_the_optimizers():
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.AdamW([weight])
    with Recorder() as recorder:
        (weight * 2.0).sum().backward()
        optimizer.step()
    parts = {block.part for block in recorder.trace().timeline.blocks if block.num_bytes == 16}
    assert {"parameters", "gradients", "optimizer state"} <= parts


def test_gradients_that_are_there_already_are_gradients():
    model = nn.Linear(2, 2, bias=False)
    model.weight.grad = torch.ones(2, 2)
    with Recorder() as recorder:
        model(torch.ones(1, 2)).sum().backward()
    timeline = recorder.trace().timeline
    before = [block for block in timeline.blocks if block.part == "gradients" and block.op == ""]
    assert [(block.name, block.num_bytes) for block in before] == [("weight", 16)]


def test_a_compiled_module_runs_eagerly_and_says_so():
    """Paths are those before compilation, and the compiler is as it was afterwards."""
    torch._dynamo.reset()
    compiled = torch.compile(nn.Sequential(nn.Linear(4, 2, bias=False)), backend="eager")
    seen = trace(compiled, torch.ones(3, 4), loss=lambda y, _: y.sum())
    assert {line.module for line in seen.ledger.where(kind="matmul")} == {"0"}
    assert seen.ledger.flops == 2 * 2 * 3 * 4 * 2
    assert any("compiled modules ran eagerly" in text for text in seen.assumptions)
    assert torch._dynamo.eval_frame._stance.stance == "default"


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own, on the first jvp of a process
@pytest.mark.parametrize("transform", ["grad", "vmap of grad", "jvp of grad"])
def test_parameters_under_torch_func_are_the_models(transform):
    """A wrapper has no memory: forward 2·3·(8·16 + 16·4), weights' gradients as much, the inner input's 2·3·16·4."""

    def build():
        model, x = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), torch.ones(3, 8)
        model.register_buffer("scale", torch.ones(()))
        given = {name: each.detach() for name, each in (*model.named_parameters(), *model.named_buffers())}

        def loss(given, rows):
            return torch.func.functional_call(model, given, (rows,)).square().sum() * given["scale"]

        gradient = torch.func.grad(loss)
        if transform == "grad":
            return lambda: gradient(given, x) and None
        if transform == "vmap of grad":
            return lambda: torch.func.vmap(gradient, (None, 0))(given, x[:, None]) and None
        return lambda: torch.func.jvp(lambda p: gradient(p, x), (given,), (given,)) and None

    seen = trace_step(build, steps=1)
    times = 3 if transform == "jvp of grad" else 1  # a product has two tangents beside
    forward, backward = 2 * 3 * (8 * 16 + 16 * 4), 2 * 3 * (8 * 16 + 2 * 16 * 4)
    assert seen.num_parameters == 8 * 16 + 16 + 16 * 4 + 4
    assert seen.model_flops == times * (forward + backward)
    assert {name: part.flops for name, part in seen.ledger.by("module").items() if part.flops} == {
        "0": times * 2 * 3 * 2 * 8 * 16,
        "2": times * 2 * 3 * 3 * 16 * 4,
    }
