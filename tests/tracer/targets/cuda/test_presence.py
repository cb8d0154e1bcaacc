import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.machine import get
from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.targets import target


def _asked(function, chip="A100 SXM 80GB"):
    with FakeTensorMode() as mode, Recorder(fake_mode=mode, target=target("cuda", chip)):
        return function()


def test_a_gpu_is_there():
    """A step that asks is told of one GPU, of the chip that it is traced for."""
    assert _asked(lambda: (torch.cuda.is_available(), torch.cuda.device_count(), torch.cuda.current_device())) == (
        True, 1, 0,
    )  # fmt: skip
    assert _asked(lambda: (torch.cuda.get_device_capability(), torch.cuda.get_device_name()), "h100") == (
        (9, 0), get("h100").name,
    )  # fmt: skip


def test_orders_are_taken():
    """What a step orders of the GPU is accepted and done by no one; no time passes on it."""

    def orders():
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        end.record()
        return start.elapsed_time(end)

    assert _asked(orders) == 0.0


def test_memory_is_that_of_the_step():
    """`memory_allocated` is what lives on the GPU now: 2·4 B, the copy on the host left out."""

    def allocated():
        x = torch.zeros(2, device="cuda")
        kept = x.cpu()
        return torch.cuda.memory_allocated(), kept.is_cpu

    assert _asked(allocated) == (2 * 4, True)


def test_a_stream_names_what_is_allocated_on_it():
    """Inside `torch.cuda.stream` memory is of that stream, outside of the default one."""

    def build():
        side = torch.cuda.Stream()

        def step():
            with torch.cuda.stream(side):
                inner = torch.zeros(2, device="cuda")
            return inner, torch.zeros(3, device="cuda")

        return step

    streams = {block.shape: block.stream for block in trace_step(build, steps=1, target="cuda").timeline.blocks}
    assert streams[3,] == ""
    assert streams[2,].startswith("stream ")


def test_no_gpu_is_there_afterwards():
    """Outside of a step torch knows of no GPU that it did not know of before."""
    before = torch.cuda.is_available, torch.cuda.Stream
    _asked(lambda: None)
    assert before == (torch.cuda.is_available, torch.cuda.Stream)
