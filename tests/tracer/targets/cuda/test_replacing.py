import types

import pytest
import torch
from torch.nn import functional

from torchledger.tracer.targets.cuda.replacing import (
    INSTEAD,
    KEPT_WHOLE,
    operation_kept_whole,
    operation_replaced,
    replaced,
)


def test_everything_is_put_back():
    """Attributes that were there are as before, and those that were not are gone, also after an exception."""
    owner = types.SimpleNamespace(a=1)

    def fail():
        with replaced(owner, {"a": 2, "b": 3}):
            assert (owner.a, owner.b) == (2, 3)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert vars(owner) == {"a": 1}


def test_an_operation_is_replaced_wherever_it_is_called():
    """Inside, the kernel runs instead of the composite operation; outside, torch's own."""
    x = torch.ones(2)
    with operation_replaced("dropout", lambda x, _probability, _train: x * 3):
        assert functional.dropout(x).tolist() == [3, 3]
        assert torch.ops.aten.dropout.default in INSTEAD
    assert functional.dropout(x, 0.0).tolist() == [1, 1]
    assert torch.ops.aten.dropout.default not in INSTEAD


def test_an_operation_is_kept_whole():
    """Inside, a composite operation reaches a mode below autograd as itself."""
    operation = torch.ops.aten._fused_rms_norm.default
    with operation_kept_whole("_fused_rms_norm"):
        assert operation in KEPT_WHOLE
        assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_rms_norm", "CPU")
    assert operation not in KEPT_WHOLE
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_rms_norm", "CPU")
