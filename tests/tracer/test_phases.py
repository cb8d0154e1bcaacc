import torch
from torch import nn

from torchledger.tracer import Recorder, trace


def _phases(run):
    with Recorder() as recorder:
        run()
    return [(call.signature.op.split(".")[1], call.phase) for call in recorder.trace().calls]


def test_an_update_by_hand_after_a_backward_pass_is_the_optimizer():
    weight = torch.ones(4, requires_grad=True)

    def run():
        (weight * 2.0).sum().backward()
        with torch.no_grad():
            weight.sub_(weight.grad, alpha=0.1)

    assert _phases(run)[-1] == ("sub_", "optimizer")


def test_a_closure_inside_an_optimizers_step_keeps_its_own_phases():
    """LBFGS runs forward and backward inside `step`: they are not the optimizer's."""
    model = nn.Linear(2, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=1)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(3, 2)).square().mean()
        loss.backward()
        return loss

    phases = dict(_phases(lambda: optimizer.step(closure)))
    assert phases["addmm"] == "forward"
    assert phases["mm"] == "backward"
    assert "optimizer" in phases.values()


def test_the_gradient_of_a_gradient_is_backward():
    """create_graph keeps gradients on inside the engine; that is no recomputation."""
    x = torch.ones(3, requires_grad=True)

    def run():
        (gradient,) = torch.autograd.grad(x.exp().sum(), x, create_graph=True)
        gradient.square().sum().backward()

    phases = [phase for _, phase in _phases(run)]
    assert set(phases) == {"forward", "backward"}


def test_a_recording_that_starts_with_an_update_calls_it_by_the_optimizer():
    """Inside `step` nothing has to come before."""
    parameter = torch.ones(3, requires_grad=True)
    parameter.grad = torch.ones(3)
    assert {phase for _, phase in _phases(torch.optim.SGD([parameter], lr=0.1).step)} == {"optimizer"}


def test_a_gradient_penalty_counts_every_product():
    """Loss y + |dy/dx|² of y = o·tanh(W x).

    The first gradient has two products, e = g·o and dy/dx = d·W (inputs). The backward pass has those of d·W by d and
    by W, that of g·o by o (g is the constant 1), and of the forward products by o, h, W and x (x needs a gradient).
    """

    class Penalty(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer = nn.Linear(8, 8, bias=False), nn.Linear(8, 1, bias=False)

        def forward(self, x):
            x = x.clone().requires_grad_()
            y = self.outer(torch.tanh(self.inner(x))).sum()
            (gradient,) = torch.autograd.grad(y, x, create_graph=True)
            return y + gradient.square().sum()

    rows = 4
    ledger = trace(Penalty(), torch.zeros(rows, 8)).ledger.where(kind="matmul")
    large, small = 2 * rows * 8 * 8, 2 * rows * 8
    products = {key: part.flops for key, part in ledger.by("module", "phase", "gradient_of").items()}
    assert products == {
        ("inner", "forward", "none"): large,
        ("outer", "forward", "none"): small,
        ("inner", "backward", "input"): 3 * large,
        ("inner", "backward", "weight"): 2 * large,
        ("outer", "backward", "input"): 2 * small,
        ("outer", "backward", "weight"): 2 * small,
    }
