import pytest
import torch
from torch import nn, optim

from torchledger.tracer import TraceError, trace_step
from torchledger.tracer.targets.answers import NORMS_ARE_ONE


def _traced(use, target="cpu"):
    def build():
        model = nn.Linear(8, 8)
        optimizer, x = optim.Adafactor(model.parameters()), torch.randn(4, 8)

        def step():
            loss = model(x).sum()
            loss.backward()
            use(optimizer, loss)

        return step

    return trace_step(build, steps=1, target=target)


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_an_optimizer_that_reads_norms_is_answered(target):
    """Adafactor reads the norm of every parameter; the trace says what it assumed."""
    trace = _traced(lambda optimizer, _loss: optimizer.step(), target)
    assert NORMS_ARE_ONE in trace.assumptions


def test_the_users_own_question_is_not():
    """A loss that the step itself reads has no value."""
    with pytest.raises(TraceError, match="values"):
        _traced(lambda _optimizer, loss: loss.item())


def test_a_scaler_tells_its_first_scale():
    """A step that logs the loss scale is told the one that the scaler began with."""

    def build():
        model, scaler, x = nn.Linear(8, 8), torch.amp.GradScaler("cpu", init_scale=2.0**10), torch.randn(4, 8)

        def step():
            scaler.scale(model(x).sum()).backward()
            return x[: int(scaler.get_scale())].sum(), scaler.state_dict()

        return step

    assert trace_step(build, steps=1).num_parameters == 8 * 8 + 8


def test_an_answered_question_is_no_call():
    """Adafactor asks for norms; every call after that stands at its own place in the timeline."""

    def build():
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.Adafactor(model.parameters())

        def step():
            model(torch.ones(2, 8)).sum().backward()
            optimizer.step()

        return step

    trace = trace_step(build)
    assert len(trace.timeline.call_positions) == len(trace.calls)
    made = [block for block in trace.timeline.blocks if block.call >= 0 and not block.op.startswith("aten.lift")]
    assert all(trace.timeline.call_positions[block.call] <= block.allocated for block in made)
