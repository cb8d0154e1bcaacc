"""Steps that a user gives: what is refused by name, and that FLOPs are the same however a model stands."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import TraceError, trace, trace_step

IN, HIDDEN, OUT, ROWS = 8, 16, 4, 5
STEP = 2 * ROWS * (2 * IN * HIDDEN + 3 * HIDDEN * OUT)  # the first layer's input needs no gradient


def test_a_generator_is_refused():
    """Drawing from it would take the user's data away."""
    model, batches = nn.Linear(IN, OUT), (torch.randn(ROWS, IN) for _ in range(3))
    with pytest.raises(TraceError, match=r"draws from the generator.*Draw one batch before"):
        trace_step(lambda: model(next(batches)).sum().backward())
    assert len(list(batches)) == 3


def test_hooks_of_the_model_see_fakes_and_leave_their_lists_alone():
    """A forward hook that collects activations collects none of the trace's."""
    model, seen_shapes = nn.Linear(IN, OUT), []
    model.register_forward_hook(lambda *args: seen_shapes.append(args[2].shape))
    trace(model, torch.randn(ROWS, IN), loss=lambda y, _: y.sum())
    assert seen_shapes == []


def test_a_step_that_returns_steps_is_told():
    with pytest.raises(TraceError, match="returns a step each time"):
        trace_step(lambda: lambda: lambda: None)


def test_a_parameter_that_hides_is_refused_before_it_gets_a_gradient():
    """Behind a name that is only known when the step runs."""
    HIDDEN_AWAY["weight"] = nn.Parameter(torch.ones(IN))
    with pytest.raises(TraceError, match=r"trains a tensor of shape \(8,\) that a trace cannot reach.*Hold it in"):
        trace_step(lambda: (globals()["HIDDEN_" + "AWAY"]["weight"] * 2).sum().backward())
    assert HIDDEN_AWAY["weight"].grad is None


HIDDEN_AWAY = {}


def _model_and_loss():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(IN, HIDDEN), nn.GELU(), nn.Dropout(0.1), nn.Linear(HIDDEN, OUT))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", ["real", "meta", "eval", "fp64", "compiled", "closure", "builder"])
def test_model_flops_are_the_same_however_it_stands(kind):
    """CPU, meta, eval, another precision, compiled, a user's step: three times the forward less one input gradient."""
    with torch.device("meta" if kind == "meta" else "cpu"):
        model, x = _model_and_loss(), torch.zeros(ROWS, IN)
    if kind == "eval":
        model.eval()
    if kind == "fp64":
        model, x = model.double(), x.double()
    if kind == "compiled":
        model = torch.compile(model)

    def loss(y, _=None):
        return y.square().mean()

    if kind == "closure":
        seen = trace_step(lambda: loss(model(x)).backward())
    elif kind == "builder":

        def build():
            inner = _model_and_loss()
            return lambda: loss(inner(torch.zeros(ROWS, IN))).backward()

        seen = trace_step(build)
    else:
        seen = trace(model, x, loss=loss)
    assert seen.model_flops == seen.executed_flops == seen.exact_flops == STEP
    assert {line.module for line in seen.ledger.where(kind="matmul")} == {"0", "3"}


def test_the_same_step_from_closure_builder_and_meta():
    """Real objects, objects on meta, and a builder: one ledger."""

    def build(device="cpu"):
        with torch.device(device):
            model = _model_and_loss()
            x, y = torch.randn(ROWS, IN), torch.zeros(ROWS, dtype=torch.long)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step():
            functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()

        return step

    ledgers = [trace_step(build).ledger, trace_step(build()).ledger, trace_step(build("meta")).ledger]
    assert ledgers[0] == ledgers[1] == ledgers[2]
    assert ledgers[0].where(kind="matmul").flops == STEP
