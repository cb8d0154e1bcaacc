"""Seconds of fused attention: which calls are timed, and as which lines; no assertion on how fast."""

import torch
from torch.nn.functional import scaled_dot_product_attention

from torchledger.meter import kernel_seconds
from torchledger.tracer import Recorder


def _recorded(dtype, num_times=1):
    query = torch.zeros(2, 3, 8, 4, dtype=dtype, requires_grad=True)
    with Recorder() as recorder:
        for _ in range(num_times):
            scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    return recorder.trace()


def test_fused_attention_is_timed_forward_and_backward():
    """Two kernels take time; the softmax that each does within takes none of its own; sums are not timed at all."""
    trace = _recorded(torch.bfloat16, num_times=2)
    timed = kernel_seconds((call.signature for call in trace.calls), budget_s=0.0)
    assert [line.op for line, seconds in timed if seconds > 0] == ["attention", "attention_backward"]
    assert all(line.work.bytes_moved == 0 for line, seconds in timed if not seconds)
    assert {line.number_format for line, _ in timed} == {"bf16"}


def test_a_timed_line_is_one_of_the_trace():
    """Operation, sizes, format and work are those of the trace's own line, so that the two can be matched."""
    trace = _recorded(torch.float32)
    own = {
        (line.op, line.shape, line.number_format, line.work.flops_executed, line.work.bytes_moved)
        for line in trace.ledger
    }
    for line, _ in kernel_seconds((call.signature for call in trace.calls), budget_s=0.0):
        assert (line.op, line.shape, line.number_format, line.work.flops_executed, line.work.bytes_moved) in own
