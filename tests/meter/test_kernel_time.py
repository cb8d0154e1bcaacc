"""Seconds of a step's kernels: which calls are timed, and as which lines; no assertion on how fast."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from torchledger.meter import kernel_seconds, kernel_time
from torchledger.tracer import Recorder


def _key(line):
    return (line.op, line.shape, line.number_format, line.work.flops_executed, line.work.bytes_moved)


def _recorded(dtype, num_times=1):
    query = torch.zeros(2, 3, 8, 4, dtype=dtype, requires_grad=True)
    with Recorder() as recorder:
        for _ in range(num_times):
            scaled_dot_product_attention(query, query, query, is_causal=True).sum().backward()
    return recorder.trace()


def _timed(trace, **options):
    return kernel_seconds((call.signature for call in trace.calls), budget_s=0.0, pool_bytes=0, **options)


def test_fused_attention_is_timed_forward_and_backward():
    """Its two kernels take time, each once however often it ran; the softmax that each does within takes none."""
    timed = [(line, seconds) for line, seconds in _timed(_recorded(torch.bfloat16, 2)) if "attention" in line.op]
    assert [line.op for line, seconds in timed if seconds > 0] == ["attention", "attention_backward"]
    within = [line for line, seconds in _timed(_recorded(torch.bfloat16, 2)) if not seconds]
    assert within
    assert all(line.work.bytes_moved == 0 for line in within)
    assert {line.number_format for line, _ in timed} == {"bf16"}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_line_of_a_trace_is_timed(dtype):
    """Operation, sizes, format and work are those of the trace's own lines, so that the two can be matched."""
    trace = _recorded(dtype)
    own = {_key(line) for line in trace.ledger if line.work.bytes_moved}
    timed = {_key(line) for line, seconds in _timed(trace) if seconds > 0}
    assert timed == own


def test_operands_are_taken_in_turn(monkeypatch):
    """A pool of ten sets of operands makes ten of them, an empty one two, and none makes more than `_MOST_OPERANDS`."""
    made = []
    real = kernel_time.real_arguments
    monkeypatch.setattr(kernel_time, "real_arguments", lambda signature: made.append(signature) or real(signature))
    x = torch.zeros(256)  # 1,024 bytes, of which `x * x` holds one storage
    with Recorder() as recorder:
        _ = x * x
    signatures = [call.signature for call in recorder.trace().calls]
    assert [each.op for each in signatures] == ["aten.mul.Tensor"]
    for pool_bytes, num_sets in ((10 * 1024, 10), (0, 2), (2**30, kernel_time._MOST_OPERANDS)):
        made.clear()
        kernel_seconds(signatures, budget_s=0.0, pool_bytes=pool_bytes)
        assert len(made) == num_sets


def test_operands_that_no_cache_holds_are_made_once(monkeypatch):
    """A kernel on 1,024 bytes has one set of operands where caches hold less: two of Adam may not fit."""
    made = []
    real = kernel_time.real_arguments
    monkeypatch.setattr(kernel_time, "real_arguments", lambda signature: made.append(signature) or real(signature))
    x = torch.zeros(256)
    with Recorder() as recorder:
        _ = x * x
    signatures = [call.signature for call in recorder.trace().calls]
    for pool_bytes, num_sets in ((1024, 1), (1025, 2)):
        made.clear()
        monkeypatch.setattr(kernel_time, "POOL_BYTES", pool_bytes)
        kernel_seconds(signatures, budget_s=0.0, pool_bytes=pool_bytes)
        assert len(made) == num_sets


def _products():
    """Calls of a product of 16x16 and of one of 4x4, the larger first."""
    with Recorder() as recorder:
        for size in (16, 4):
            _ = torch.ones(size, size) @ torch.ones(size, size)
    return [call.signature for call in recorder.trace().calls if call.signature.op == "aten.mm.default"]


def test_what_would_take_longer_than_is_left_is_left_out():
    """A second a row, and run twice at least: 4 rows go into 10 s and 16 do not, both into 100 s, neither into 1 s."""
    rows = lambda line: float(dict(line.shape)["m"])  # noqa: E731  # a rate of one line
    for total_s, sizes in ((10.0, [4]), (100.0, [4, 16]), (1.0, [])):
        timed = kernel_seconds(_products(), budget_s=0.0, pool_bytes=0, total_s=total_s, likely_s=rows)
        assert [dict(line.shape)["m"] for line, _ in timed] == sizes


def test_what_a_call_likely_takes_is_that_of_its_lines():
    """Before a kernel runs it is known which lines it has: their bytes are those of the trace, call by call."""
    trace = _recorded(torch.bfloat16)
    told = [kernel_time._likely_s(call.signature, lambda line: line.work.bytes_moved) for call in trace.calls]
    assert sum(told) == sum(line.work.bytes_moved * line.times for line in trace.ledger)


def test_what_zeros_cannot_stand_in_for_is_left_out():
    """Of zero probabilities nothing can be drawn: that line has no time, and the product beside it has one."""
    weights = torch.ones(4, 4)
    with Recorder() as recorder:
        torch.multinomial(weights, 2)
        _ = weights @ weights
    timed = kernel_seconds((call.signature for call in recorder.trace().calls), budget_s=0.0, pool_bytes=0)
    assert [line.op for line, _ in timed] == ["matmul"]


def test_the_random_stream_is_untouched():
    """Dropout that is timed draws no number of the run's."""
    with Recorder() as recorder:
        torch.nn.functional.dropout(torch.ones(64), 0.5)
    before = torch.get_rng_state()
    assert kernel_seconds((call.signature for call in recorder.trace().calls), budget_s=0.0, pool_bytes=0)
    assert torch.equal(torch.get_rng_state(), before)
