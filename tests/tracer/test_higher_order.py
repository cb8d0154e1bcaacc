"""Control flow under the recorder: what was there before it is there after, and inference mode counts the same."""

import pytest
import torch
from torch._higher_order_ops import cond, scan, while_loop
from torch._higher_order_ops.cond import cond_op
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer import Recorder, TraceError
from torchledger.tracer.higher_order import is_whole

N = 8
MM = 2 * N**3

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about running it without its compiler


def _looked_at(run):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with mode, Recorder(fake_mode=mode) as recorder:
        run()
    return recorder.trace()


def _square(*, grad=False):
    return torch.rand(N, N, requires_grad=grad)  # zeros would be known, and what they decide with them


def test_torchs_own_way_is_back_afterwards():
    """The kernels of control flow are replaced while a recorder is on, and whatever happens put back."""
    before = dict(cond_op.py_kernels)
    with pytest.raises(ZeroDivisionError):
        _looked_at(lambda: 1 / 0)
    assert cond_op.py_kernels == before


@pytest.mark.parametrize("grad", [False, True])
def test_inference_mode_counts_the_same(grad):
    """There an operation comes past autograd, and its body's operations come whole."""

    def run():
        with torch.inference_mode(not grad):
            x, w = _square(), _square()
            x = cond(x.sum() > 0, lambda x: (x @ w) @ w, lambda x: x @ w, (x,))
            x, _ = scan(lambda c, y: (c @ w, y.clone()), x, torch.zeros(3, N, N))
            while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, x @ w), (torch.tensor(0), x.clone()))

    assert _looked_at(run).ledger.flops == (2 + 3 + 2) * MM


def test_the_branch_that_is_not_taken_leaves_nothing():
    """No call and no memory of it is on the books."""
    x = _square()
    seen = _looked_at(lambda: cond(x.clone().sum() > 0, lambda x: x @ x, torch.relu, (x,)))
    assert "relu" not in {line.op for line in seen.ledger}


def test_a_loop_whose_end_is_data_is_unknown_with_what_one_iteration_costs():
    """The ledger is incomplete, and says which loop."""
    seen = _looked_at(lambda: while_loop(lambda x: x.sum() < 9, lambda x: ((x @ x) @ x,), (_square(),)))
    (line,) = seen.ledger.unknown_lines
    assert (line.op, line.work.flops_full, dict(line.shape)) == ("while_loop", None, {"flops_per_iteration": 2 * MM})
    assert not seen.ledger.is_complete


def test_a_loop_over_known_values_that_never_ends_is_refused(monkeypatch):
    """Zeros stay zeros: instead of running for ever it says that it does."""
    monkeypatch.setattr("torchledger.tracer.higher_order._MOST_ITERATIONS", 50)
    with pytest.raises(TraceError, match="not ended after 50 iterations"):
        _looked_at(lambda: while_loop(lambda x: x.sum() < 9, lambda x: (x @ x,), (torch.zeros(N, N),)))


def test_gradients_reach_what_a_body_reaches_for():
    """W is no argument of the body; its gradient is there all the same: two products an iteration back."""

    def run():
        w = _square(grad=True)
        carry, _ = scan(lambda c, y: (c @ w, y.clone()), _square(grad=True), torch.zeros(3, N, N))
        carry.sum().backward()

    assert _looked_at(run).ledger.where(phase="backward").flops == 3 * 2 * MM


def test_on_real_tensors_the_branch_is_the_real_one():
    """Nothing is assumed where values are there."""
    x = torch.ones(N, N)
    with Recorder() as recorder:
        cond(x.sum() > 0, lambda x: x @ x, lambda x: (x @ x) @ x, (x,))
    seen = recorder.trace()
    assert (seen.ledger.flops, seen.assumptions) == (MM, ())


def test_what_stands_for_others():
    assert is_whole(torch.ops.aten.matmul.default)
    assert is_whole(cond_op)
    assert not is_whole(torch.ops.aten.mm.default)
