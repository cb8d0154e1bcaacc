"""Formats of what kernels return: on fake tensors those of the CPU's kernels, not those of torch's shape rules."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import Recorder, trace_step
from torchledger.tracer.kernel_formats import WORKSPACE

B, C, T = 4, 16, 8
NORMS = {
    "layer": (lambda: nn.LayerNorm(T), 2 * B * C * 4),
    "group": (lambda: nn.GroupNorm(2, C), 2 * B * 2 * 4),
    "batch": (lambda: nn.BatchNorm1d(C), 2 * C * 4),
    "instance": (lambda: nn.InstanceNorm1d(C, affine=True), 2 * B * C * 4),
}


def _built(make):
    """A norm of BF16 activations, as autocast leaves its parameters: in FP32."""

    def build():
        norm, x = make(), torch.ones(B, C, T, dtype=torch.bfloat16)
        scale = torch.ones(1, dtype=torch.bfloat16, requires_grad=True)

        def step():
            with torch.autocast("cpu", torch.bfloat16):
                norm(x * scale).float().sum().backward()

        return step

    return build


def _really(build):
    with Recorder() as recorder:
        with recorder.phase("build"):
            step = build()
        for number in (1, 2):
            recorder.mark(f"step {number}")
            step()
    return recorder.trace(since="step 2")


@pytest.mark.parametrize("name", NORMS)
def test_statistics_of_halves_are_kept_in_fp32_where_the_parameters_are(name):
    """Mean and 1/σ take 4 bytes each; every block of a fake run is that of a real one."""
    make, num_bytes = NORMS[name]
    fake, real = trace_step(_built(make)), _really(_built(make))
    assert fake.timeline.blocks == real.timeline.blocks
    assert fake.ledger.lines == real.ledger.lines
    kept = [block for block in fake.timeline.blocks if "norm" in block.op and block.call >= fake.first_call]
    statistics = [b.num_bytes for b in kept if b.phase == "forward" and b.number_format == "fp32"]
    assert sum(statistics) == num_bytes


def _recurrent():
    lstm, x = nn.LSTM(C, C, batch_first=True), torch.ones(B, T, C)

    def step():
        functional.mse_loss(lstm(x)[0], x).backward()
        lstm.zero_grad()

    return step


def test_both_biases_of_a_recurrent_layer_have_gradients_of_their_own():
    """4·C numbers each, whether torch's own cache of fake results was asked before or not."""
    traces = [trace_step(_recurrent) for _ in range(2)]
    assert traces[0].timeline == traces[1].timeline
    assert not any(call.signature.op.startswith("aten.new_empty_strided") for call in traces[0].calls)
    biases = [b.num_bytes for b in traces[0].timeline.blocks if b.part == "gradients" and "bias" in b.name]
    assert biases == [4 * 4 * C] * 4  # two biases, two steps


def test_the_workspace_of_a_recurrent_layer_is_said():
    """The library alone knows how large it is; `meter.probe` sees it."""
    assert WORKSPACE in trace_step(_recurrent).assumptions
