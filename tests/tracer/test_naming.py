import torch
from torch import nn

from torchledger.tracer import Recorder, trace


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
