import pytest
import torch
from torch import nn
from torch import zeros as imported_zeros
from torch.utils.checkpoint import checkpoint

from torchledger.tracer import trace, trace_step


def _blocks(build, **arguments):
    return trace_step(build, steps=1, target="cuda", **arguments).timeline.blocks


def test_a_model_moved_to_the_gpu_was_built_on_the_host():
    """`.cuda()` copies every parameter: the originals are host memory, the copies device memory."""
    blocks = _blocks(lambda: nn.Linear(8, 4).cuda().zero_grad)
    assert sum(block.num_bytes for block in blocks if block.on_host) == (8 * 4 + 4) * 4
    assert sum(block.num_bytes for block in blocks if not block.on_host) == (8 * 4 + 4) * 4


def test_a_model_that_says_nothing_is_on_the_gpu():
    """Code that names no device runs as if the GPU were its default: nothing is on the host, nothing copied."""
    blocks = _blocks(lambda: nn.Linear(8, 4).zero_grad)
    assert not any(block.on_host for block in blocks)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(4, device="cuda"),
        lambda: torch.zeros(4, device=torch.device("cuda", 0)),
        lambda: torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda:0"),
        lambda: torch.ones(4, device=0),
    ],
)
def test_made_on_the_gpu(make):
    """A tensor made with a CUDA device, however it is spelled, is device memory."""

    def build():
        made = make()
        assert made.is_cuda
        assert made.get_device() == 0
        return lambda: made

    assert [block.on_host for block in _blocks(build) if block.shape == (4,)] == [False]


def test_a_function_imported_before():
    """A function of torch that the step's file imported long ago makes tensors on the GPU as well."""

    def build():
        x = imported_zeros(4, device="cuda", requires_grad=True)
        return lambda: (x * torch.ones(4, device="cuda")).sum().backward()

    assert not any(block.on_host for block in _blocks(build))


def test_a_default_device():
    """Inside `with torch.device("cuda")` a model is made on the GPU, and moving it there again copies nothing."""

    def build():
        with torch.device("cuda"):
            model = nn.Linear(8, 4)
        model.cuda()
        x = torch.ones(2, 8, device="cuda")
        return lambda: model(x).sum().backward()

    blocks = _blocks(build)
    assert not any(block.on_host for block in blocks)
    assert sum(block.num_bytes for block in blocks if block.part == "parameters") == (8 * 4 + 4) * 4


def test_the_default_device_of_all():
    """`torch.set_default_device("cuda")` says what is so already, and leaves torch's own default alone."""

    def build():
        torch.set_default_device("cuda")
        x = torch.ones(2)
        return lambda: x + 1

    assert not any(block.on_host for block in _blocks(build))
    assert torch.get_default_device().type == "cpu"


@pytest.mark.parametrize("move", [lambda x: x.cpu(), lambda x: x.to("cpu"), lambda x: x.to("cpu", torch.float64)])
def test_moved_to_the_host(move):
    """`.cpu()` of device memory is a copy in host memory, in no peak."""

    def build():
        x = torch.zeros(4, device="cuda")
        kept = move(x)
        assert not kept.is_cuda
        return lambda: (x, kept)

    trace = trace_step(build, steps=1, target="cuda")
    assert sorted(block.on_host for block in trace.timeline.blocks) == [False, True]
    assert trace.timeline.peak().peak_bytes == 4 * 4


def test_another_tensors_device_is_where_that_is():
    """`device=x.device` and `.to(x.device)` inside a model stay on the GPU; what `.cpu()` put on the host is copied."""

    def build():
        x = torch.zeros(4, device="cuda")
        return lambda: (torch.arange(4, device=x.device), torch.ones(4).to(x.device), x.new_ones(4, device=x.device))

    assert not any(block.on_host for block in _blocks(build))
    moved = _blocks(lambda: lambda: torch.ones(4, device="cpu").to(torch.zeros(2, device="cuda").device))
    assert [block.on_host for block in moved if block.shape == (4,)] == [True, False]


class _Branches(nn.Module):
    """Takes another way on a GPU, as models do that have kernels of their own for it."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        """Autocast for the device at hand, positions and a mask made on it, one more product on a GPU."""
        assert x.device == self.linear.weight.device == x.new_zeros(1).device
        assert x.device == (torch.device("cuda", torch.cuda.current_device()) if x.is_cuda else torch.device("cpu"))
        with torch.cuda.device(x.device) if x.is_cuda else torch.no_grad():
            positions = torch.arange(x.shape[1], device=x.device)
        with torch.autocast(device_type=x.device.type, dtype=torch.bfloat16):
            y = self.linear(x)
        y = checkpoint(self.linear, y.float() * positions.to(x.device), use_reentrant=False)
        return self.linear(y) if x.device.type == "cuda" else y


@pytest.mark.parametrize(("target", "times"), [("cuda", 3), ("cpu", 2)])
def test_a_model_branches_on_the_device(target, times):
    """`x.device.type == "cuda"` is true on a GPU and false on the CPU, for parameters, activations and inputs."""
    seen = trace(
        _Branches(), torch.zeros(4, 8), loss=lambda y, _: y.square().mean(), optimizer=torch.optim.AdamW, target=target,
        gradient_clip=1.0,
    )  # fmt: skip
    assert seen.ledger.where(phase="forward").flops == times * 2 * 4 * 8 * 8
    assert [line.number_format for line in seen.ledger.where(phase="forward", kind="matmul")][:1] == ["bf16"]


def test_the_device_of_what_is_on_the_host():
    """`.cpu()` and `device="cpu"` are on the CPU to whoever asks; torch itself sees devices that agree."""

    def step():
        x = torch.ones(4, device="cuda")
        on = [tensor.device.type for tensor in (x, x.cpu(), torch.zeros(4, device="cpu"), x.cpu().cuda())]
        assert on == ["cuda", "cpu", "cpu", "cuda"]
        (x + x.cpu().to(x.device)).sum()

    _blocks(lambda: step)
    assert torch.zeros(1).device.type == "cpu"


def test_a_batch_cut_from_data_on_the_host():
    """Data that batches are moved from stays in host memory; a batch is device memory."""

    def build():
        data = torch.randn(100, 8).pin_memory()

        def step():
            return data[:4].to("cuda", non_blocking=True) * 2

        return step

    assert [(block.shape, block.on_host) for block in _blocks(build)] == [
        ((100, 8), True), ((4, 8), False), ((4, 8), False),
    ]  # fmt: skip


def test_the_methods_are_put_back():
    """Outside of a step the methods of tensors are torch's own."""
    before = torch.Tensor.to, torch.Tensor.cuda, torch.zeros
    _blocks(lambda: lambda: None)
    assert before == (torch.Tensor.to, torch.Tensor.cuda, torch.zeros)
    assert "to" not in vars(torch.Tensor)


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda"), "cpu"])
def test_a_generator_of_any_device_draws(device):
    """`torch.Generator(device="cuda")` fills tensors on the GPU; it is a generator to whoever asks."""

    def step():
        generator = torch.Generator(device=device).manual_seed(3)
        assert isinstance(generator, torch.Generator)
        made = torch.randn(4, generator=generator, device=device)
        nn.init.normal_(made, generator=generator)
        assert made.is_cuda is ("cuda" in str(device))

    plain = torch.Generator
    (block,) = _blocks(lambda: step)
    assert block.num_bytes == 4 * 4
    assert torch.Generator is plain
