"""What runs, and what is made from memory."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.tracer.execution import Execution
from torchledger.tracer.memo import Memo
from torchledger.tracer.modules import ModuleStack
from torchledger.tracer.routing import Routing


def test_an_equal_call_on_fake_tensors_runs_once():
    """The second result is made of what the first one was, in a storage of its own."""
    mode = FakeTensorMode()
    runs = []

    class Counted:
        namespace, tags = "aten", ()

        def __call__(self, x):
            runs.append(x)
            return torch.ops.aten.neg.default(x)

    execution = Execution(Memo(mode), Routing(ModuleStack(lambda _: None), mode, None, [].append))
    with mode:
        x, func = torch.zeros(3), Counted()
        one, other = (execution.run(func, (x,), {}, "key", [x]) for _ in range(2))
    assert len(runs) == 1
    assert (one.shape, one.dtype) == (other.shape, other.dtype)
    assert one.untyped_storage()._cdata != other.untyped_storage()._cdata


def test_without_a_fake_mode_everything_runs():
    execution = Execution(None, Routing(ModuleStack(lambda _: None), None, None, [].append))
    x = torch.ones(2)
    assert torch.equal(execution.run(torch.ops.aten.neg.default, (x,), {}, "key", [x]), -x)
