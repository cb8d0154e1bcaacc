import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.machine import UnknownChip, get
from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.storages import Storages
from torchledger.tracer.targets import CPU, Target, target


def test_by_name():
    """A chip may be named; a target has the chip itself."""
    assert target() == CPU
    assert target("cuda", "H100 SXM") == Target("cuda", get("H100 SXM"))
    assert target("cuda", "H100 SXM", "flash").attention == "flash"


def test_an_unknown_chip():
    """A chip that no row names is an error."""
    with pytest.raises(UnknownChip):
        target("cuda", "H9000")


def test_the_cpu_replaces_no_operation():
    """A trace for the CPU runs torch's own kernels, but for values without vectors, and asks for nothing to be told."""
    before = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutogradCPU"))
    with CPU.running(Storages(), lambda _: None) as after_call:
        assert after_call is None
        during = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutogradCPU"))
        assert during - before == {"aten::linalg_eigvalsh", "aten::linalg_svdvals", "aten::linalg_eigvals"}
        assert not torch.cuda.is_available() or torch.cuda.device_count() > 0
    assert set(torch._C._dispatch_get_registrations_for_dispatch_key("AutogradCPU")) == before


@pytest.mark.parametrize(
    ("kernel", "op"),
    [
        ("flash", "_scaled_dot_product_flash_attention"),
        ("efficient", "_scaled_dot_product_efficient_attention"),
        ("cudnn", "_scaled_dot_product_cudnn_attention"),
        ("math", "bmm"),
    ],
)
def test_attention_can_be_chosen(kernel, op):
    """The kernel that is asked for runs, whatever CUDA would choose."""

    def build():
        x = torch.ones(2, 4, 32, 64, dtype=torch.bfloat16, requires_grad=True)
        return lambda: functional.scaled_dot_product_attention(x, x, x).sum().backward()

    calls = trace_step(build, steps=1, target=target("cuda", "A100 SXM 80GB", kernel)).calls
    assert any(call.signature.op.split(".")[1] == op for call in calls)


def test_no_chip_is_an_assumption():
    """Where no chip is named, the trace says whose kernels it shows."""
    trace = trace_step(lambda: nn.Linear(2, 2).zero_grad, steps=1, target="cuda")
    assert any("A100" in assumption for assumption in trace.assumptions)


def test_everything_is_put_back_after_an_error():
    """A recording that fails leaves the dispatcher, torch.Tensor and torch.cuda as they were."""

    def state():
        keys = ("AutogradCPU", "AutocastCPU", "CPU")
        kernels = [set(torch._C._dispatch_get_registrations_for_dispatch_key(key)) for key in keys]
        return kernels, set(vars(torch.Tensor)), torch.cuda.is_available, torch.zeros, torch.get_autocast_dtype

    def fail():
        with Recorder(target=target("cuda", "H100 SXM")):
            raise ZeroDivisionError

    before = state()
    with pytest.raises(ZeroDivisionError):
        fail()
    assert state() == before
