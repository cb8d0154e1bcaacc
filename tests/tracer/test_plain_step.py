"""The plain step's options: micro-batches, gradients that stay, fp16 with a scaler."""

import pytest
import torch
from torch import nn

from torchledger.tracer import TraceError, trace, trace_step

IN, OUT, ROWS = 8, 4, 16
FLOPS = 2 * 2 * ROWS * IN * OUT
NUM_BYTES = 4 * (IN * OUT + OUT)


def _traced(**options):
    options = {"loss": lambda y, _: y.square().mean(), "optimizer": torch.optim.SGD} | options
    return trace(nn.Linear(IN, OUT), torch.zeros(ROWS, IN), **options)


def test_micro_batches_repeat_forward_and_backward_and_update_once():
    one, three = _traced(), _traced(accumulation_steps=3)
    assert three.model_flops == 3 * one.model_flops == 3 * FLOPS
    assert (
        three.ledger.where(phase="optimizer", module="").total == one.ledger.where(phase="optimizer", module="").total
    )


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_are_freed_or_stay(set_to_none):
    """At the beginning of the second step they are gone, or there."""
    seen = _traced(set_to_none=set_to_none)
    live = [block for block in seen.timeline.live_at(seen.step_events) if block.part == "gradients"]
    assert sum(block.num_bytes for block in live) == (0 if set_to_none else NUM_BYTES)


def test_fp16_runs_with_a_gradient_scaler_on_cuda():
    """Products in fp16, gradients unscaled in one pass; the scaler never skips, which is said."""
    seen = _traced(precision="fp16", target="cuda", gradient_clip=1.0)
    assert {line.number_format for line in seen.ledger.where(kind="matmul")} == {"fp16"}
    assert seen.model_flops == FLOPS
    assert any("the gradient scaler skips no step" in line for line in seen.assumptions)
    assert any("unscale" in call.signature.op for call in seen.calls)


def test_a_users_scaler_is_traced_and_left_alone():
    """Its `.item()` on found infinities is answered: there are none."""
    model = nn.Linear(IN, OUT)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")
    x = torch.zeros(ROWS, IN)

    def step():
        scaler.scale(model(x).square().mean()).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    original = torch.amp.GradScaler._maybe_opt_step
    before = scaler.state_dict()
    assert trace_step(step).ledger.where(kind="matmul").flops == FLOPS
    assert scaler.state_dict() == before
    assert torch.amp.GradScaler._maybe_opt_step is original


def test_a_loss_may_be_a_module_with_parameters_of_its_own():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(OUT))

        def forward(self, output, _batch):
            return (output * self.weight).mean()

    loss = Loss()
    assert _traced(loss=loss).model_flops == FLOPS
    assert loss.weight.grad is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": 2.5}, "nothing to look at in 2.5 steps. Run 1, 2"),
        ({"accumulation_steps": 0}, "0 micro-batches make no step. Take 1, 2"),
        ({"gradient_clip": -1.0}, "gradient_clip is -1.0, no norm. Take 0"),
        ({"gradient_clip": float("nan")}, "gradient_clip is nan, no norm"),
        ({"gradient_clip": None}, "gradient_clip is None, no norm"),
        ({"loss": "mse"}, "the loss is 'mse', no function. Pass a function of output and batch"),
        ({"optimizer": "adamw"}, r"the optimizer is 'adamw'. Pass one made on model.parameters\(\)"),
        ({"optimizer": lambda _: 3}, "what makes the optimizer returns int. Pass one made on"),
        ({"optimizer": torch.optim.LBFGS}, "wants a closure .*. Use trace_step"),
        ({"loss": lambda output, _: torch.complex(output, output).sum()}, "the loss is complex"),
    ],
)
def test_options_that_cannot_be_are_refused(options, message):
    """No option is ignored: a string is no optimizer, a norm is not below 0."""
    with pytest.raises(TraceError, match=message):
        _traced(**options)
