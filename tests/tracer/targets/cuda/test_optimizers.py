import pytest
import torch
from torch import nn, optim
from torch.optim import optimizer as optimizer_module

from torchledger.tracer import trace_step


def _seen(make, *, bias=True, steps=1):
    def build():
        model = nn.Linear(8, 8, bias=bias)
        optimizer, x = make(model.parameters()), torch.randn(4, 8)

        def step():
            model(x).sum().backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

        return step

    return trace_step(build, steps=steps, target="cuda", chip="a100")


def _ops(trace):
    return {call.signature.op.split(".")[1] for call in trace.calls if call.phase == "optimizer"}


def _counters(trace):
    return [
        block for block in trace.timeline.blocks
        if block.part == "optimizer state" and block.name.rpartition(".")[2] == "step"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("make", "op"),
    [
        (optim.AdamW, "_foreach_lerp_"),
        (optim.Adam, "_foreach_lerp_"),
        (lambda parameters: optim.SGD(parameters, momentum=0.9), "_foreach_add_"),
        (optim.Adagrad, "_foreach_addcmul_"),
        (optim.RMSprop, "_foreach_addcmul_"),
        (optim.NAdam, "_foreach_lerp_"),
        (lambda parameters: optim.AdamW(parameters, fused=True), "_fused_adamw_"),
        (lambda parameters: optim.SGD(parameters, fused=True), "_fused_sgd_"),
        (lambda parameters: optim.Adagrad(parameters, fused=True), "_fused_adagrad_"),
        (lambda parameters: optim.AdamW(parameters, foreach=False), "lerp_"),
    ],
)
def test_which_implementation_runs(make, op):
    """On CUDA one operation updates all parameters unless asked otherwise; clipping does so too."""
    assert {op, "_foreach_norm"} <= _ops(_seen(make))


@pytest.mark.parametrize("make", [optim.AdamW, optim.Adagrad, optim.RMSprop, optim.NAdam, optim.Adafactor])
def test_counters_stand_on_the_host(make):
    """A step counter a parameter, 4 B each, is in host memory where nothing asks for it on the GPU."""
    counters = _counters(_seen(make))
    assert [(block.num_bytes, block.on_host) for block in counters] == [(4, True)] * 2


@pytest.mark.parametrize("option", ["fused", "capturable"])
def test_counters_stand_on_the_gpu_where_a_kernel_reads_them(option):
    """`fused=True` and `capturable=True` put them in device memory."""
    counters = _counters(_seen(lambda parameters: optim.AdamW(parameters, **{option: True})))
    assert [(block.num_bytes, block.on_host) for block in counters] == [(4, False)] * 2


def test_muon_keeps_one_momentum():
    """Muon of an 8 x 8 weight: one buffer of 8·8·4 B."""
    state = [
        block for block in _seen(optim.Muon, bias=False).timeline.blocks if block.part == "optimizer state"
    ]  # fmt: skip
    assert [block.num_bytes for block in state] == [8 * 8 * 4]


@pytest.mark.parametrize("fused", [False, True])
def test_a_gradient_scaler_of_cuda(fused):
    """FP16 with `GradScaler("cuda")`: gradients are unscaled and looked through, the scale is updated.

    That none overflows is assumed where Python asks; a fused kernel asks by itself.
    """

    def build():
        model, scaler, x = nn.Linear(8, 8), torch.amp.GradScaler("cuda"), torch.randn(4, 8)
        optimizer = optim.AdamW(model.parameters(), fused=fused)

        def step():
            with torch.autocast("cuda", torch.float16):
                loss = model(x).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()

        return step

    trace = trace_step(build, steps=2, target="cuda", chip="A100 SXM 80GB")
    seen = [call.signature.op.split(".")[1] for call in trace.calls]
    assert seen.count("_amp_foreach_non_finite_check_and_unscale_") == seen.count("_amp_update_scale_") == 2
    assert ("_fused_adamw_" in seen) == fused
    assert any("finite" in assumption for assumption in trace.assumptions) != fused


def test_torch_is_as_before():
    """Afterwards the CPU is on no list of torch.optim again."""
    before = optimizer_module._get_foreach_kernels_supported_devices
    _seen(optim.AdamW)
    assert optimizer_module._get_foreach_kernels_supported_devices is before
    assert "cpu" not in before()
