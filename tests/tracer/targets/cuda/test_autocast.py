"""Expected formats are those of PyTorch 2.13's aten/src/ATen/autocast_mode.h, which is installed with torch."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.targets import target
from torchledger.tracer.targets.cuda.autocast import autocast_of_cuda, policies

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
HEADER = Path(torch.__file__).parent / "include/ATen/autocast_mode.h"


def _in_a_step(function):
    """What the function returns inside a step traced for CUDA."""
    with (
        FakeTensorMode(allow_non_fake_inputs=True) as mode,
        Recorder(fake_mode=mode, target=target("cuda", "A100 SXM 80GB")),
    ):
        return function()


def _dtype(function, dtype=BF16):
    def inside():
        with torch.autocast("cuda", dtype):
            return function().dtype

    return _in_a_step(inside)


@pytest.mark.parametrize(
    ("policy", "macro"),
    [
        ("lower_precision", "AT_FORALL_LOWER_PRECISION_FP"),
        ("fp32", "AT_FORALL_FP32"),
        ("fp32_set_opt_dtype", "AT_FORALL_FP32_SET_OPT_DTYPE"),
        ("promote", "AT_FORALL_PROMOTE"),
    ],
)
def test_the_lists_are_those_of_torchs_header(policy, macro):
    """Each policy has exactly the operations of the installed header's macro."""
    body = HEADER.read_text().split(f"#define {macro}(_)", 1)[1].split("\n\n", 1)[0]
    names = {".".join(re.split(r",\s*", entry)) for entry in re.findall(r"_\((\w+(?:,\s*\w+)?)\)", body)}
    assert set(policies()[policy]) == names


def test_the_lists_are_what_this_build_registers_for_cuda():
    """Every kernel under CUDA's autocast key has a policy here, cuDNN's own convolutions (never called here) apart."""
    registered = set(torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA"))
    ours = {f"aten::{name}" for names in policies().values() for name in names}
    assert registered - ours == {"aten::cudnn_convolution", "aten::cudnn_convolution_transpose"}
    assert ours - registered == {"aten::_cudnn_rnn"}  # registered by builds with cuDNN


X = torch.ones(4, 4)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda: X @ X, BF16),
        (lambda: torch.einsum("ab,bc->ac", X, X), BF16),
        (lambda: functional.linear(X, X), BF16),
        (lambda: torch.exp(X @ X), FP32),  # the CPU's list leaves it in BF16
        (lambda: (X @ X).softmax(-1), FP32),
        (lambda: (X @ X).softmax(-1, dtype=BF16), BF16),
        (lambda: torch.sum(X @ X), FP32),
        (lambda: (X @ X).sum(0, dtype=BF16), BF16),
        (lambda: torch.norm(X @ X), FP32),
        (lambda: (X @ X).norm(2, 0), FP32),
        (lambda: functional.layer_norm(X @ X, (4,)), FP32),
        (lambda: functional.rms_norm(X @ X, (4,)), FP32),
        (lambda: functional.cross_entropy(X @ X, torch.zeros(4, dtype=torch.long)), FP32),
        (lambda: functional.mse_loss(X @ X, X), FP32),
        (lambda: (X @ X) ** 2, FP32),
        (lambda: torch.addcmul(X @ X, X @ X, X), FP32),
        (lambda: torch.addcmul(X @ X, X @ X, X @ X), BF16),
        (lambda: functional.gelu(X @ X), BF16),
        (lambda: torch.cat([X @ X, X]), FP32),  # no policy: type promotion
        (lambda: X.double() @ X.double(), torch.float64),  # double is never cast
        (lambda: functional.avg_pool3d((X @ X)[None, None, None], 1), BF16),  # the CPU casts it to FP32
    ],
)
def test_formats_of_results(function, expected):
    """Under CUDA's autocast every operation's result has the format that its policy gives."""
    assert _dtype(function) == expected


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_any_device_means_cuda_whose_default_is_fp16(device):
    """Autocast of a device-generic step is CUDA's; without a dtype it is FP16."""

    def inside():
        with torch.autocast(device):
            return (X @ X).dtype, torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")

    assert _in_a_step(inside) == (FP16, True, FP16)


def test_switched_off_inside():
    """A region with `enabled=False` computes in the operands' formats."""

    def inside():
        with torch.autocast("cuda", BF16):
            with torch.autocast("cuda", enabled=False):
                off = (X @ X).dtype
            return off, (X @ X).dtype

    assert _in_a_step(inside) == (FP32, BF16)


def test_custom_functions_cast_as_they_ask():
    """`custom_fwd(cast_inputs=...)` casts its floating inputs and runs without autocast."""

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=FP32)
        def forward(_ctx, x):
            """A product."""
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(_ctx, gradient):
            """Its gradient, near enough."""
            return gradient

    assert _dtype(lambda: Product.apply(X @ X)) == FP32


def test_what_is_unsafe_is_refused():
    """Binary cross entropy of probabilities is an error under CUDA's autocast."""
    with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits"):
        _dtype(lambda: functional.binary_cross_entropy(X, X))


def _casts(steps=1, uses=2, *, cache=True):
    def build():
        linear, x = nn.Linear(8, 4), torch.ones(2, 8)

        def step():
            with torch.autocast("cuda", BF16, cache_enabled=cache):
                total = sum(linear(x).sum() for _ in range(uses))
            total.backward()

        return step

    trace = trace_step(build, steps=steps, target="cuda")
    return trace, [block for block in trace.timeline.blocks if block.part == "autocast casts"]


def test_a_weight_is_cast_once_until_autocast_ends():
    """One BF16 copy of weight (8·4·2 B) and bias (4·2 B) serves every use, and is gone after the backward pass."""
    trace, casts = _casts(uses=3)
    assert [block.num_bytes for block in casts] == [8 * 4 * 2, 4 * 2]
    assert all(block.freed is not None and block.freed < trace.timeline.num_events for block in casts)


def test_without_the_cache_every_use_casts():
    """`cache_enabled=False` casts anew at every use, and keeps nothing."""
    trace, casts = _casts(uses=3, cache=False)
    assert casts == []
    copies = [call for call in trace.calls if call.signature.op == "aten._to_copy.default" and call.phase == "forward"]
    assert len(copies) == 3 * 3  # input, weight, bias


def test_nothing_is_left_behind():
    """After a step, also one that fails, autocast of this process is as before, without a warning."""
    before = torch.get_autocast_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype("cpu")

    def fail():
        with autocast_of_cuda(lambda _cast: None), torch.autocast("cuda"):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert (torch.get_autocast_dtype, torch.is_autocast_enabled, torch.get_autocast_dtype("cpu")) == before
    assert not torch.is_autocast_enabled("cpu")
    with torch.autocast("cpu", BF16):
        assert (X @ X).exp().dtype == BF16  # the CPU's own list again
