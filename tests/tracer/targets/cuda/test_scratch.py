"""Buffers as PyTorch's CUDA sources allocate them; each test writes down the arithmetic of its file."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import trace_step
from torchledger.tracer.targets.cuda.scratch import inside_by_call, known_bytes, scratch_by_call


def _scratch(build, op, chip="A100 SXM 80GB"):
    """Buffers of the first call of that operation, by name."""
    trace = trace_step(build, steps=1, target="cuda", chip=chip)
    held = scratch_by_call(trace.calls)
    found = next(index for index, call in enumerate(trace.calls) if call.signature.op.split(".")[1] == op)
    return {buffer.name: buffer.num_bytes for buffer in held.get(found, ())}


def _embedding(tokens, vocabulary=1000, width=64):
    def build():
        table, x = nn.Embedding(vocabulary, width), torch.zeros(tokens, dtype=torch.long)
        weights = torch.ones(tokens, width)
        return lambda: (table(x) * weights).sum().backward()

    return build


def test_few_tokens_of_an_embedding_need_nothing():
    """Up to 3,072 indices one kernel adds the rows (Embedding.cu)."""
    assert _scratch(_embedding(3072), "embedding_dense_backward") == {}


def test_many_tokens_of_an_embedding_are_sorted():
    """4,096 indices of 1,000 rows: 1,000 segments, 4,096 // 10 + 1,000 partial ones, each a row of 64 in FP32."""
    partial = 4096 // 10 + 1000
    assert _scratch(_embedding(4096), "embedding_dense_backward") == {
        "sorted_indices": 4096 * 8,
        "orig_indices": 4096 * 8,
        "segment_offsets": 1000 * 8,
        "num_of_segments": 8,
        "partials_per_segment": 1000 * 8,
        "partials_per_segment_offset": 1000 * 8,
        "num_of_partial_segments": 8,
        "partial_segment_offset": partial * 8,
        "grad_weight_per_segment": partial * 64 * 4,
    }


def _attention(dtype=torch.bfloat16, tokens=200, size=64, key_heads=4):
    def build():
        query = torch.randn(2, tokens, 4, size, dtype=dtype, requires_grad=True)
        key, value = (torch.randn(2, tokens, key_heads, size, dtype=dtype, requires_grad=True) for _ in range(2))
        weights = torch.ones(2, tokens, 4, size, dtype=dtype)

        def step():
            turned = (tensor.transpose(1, 2) for tensor in (query, key, value))
            out = functional.scaled_dot_product_attention(*turned, enable_gqa=key_heads != 4)
            (out.transpose(1, 2) * weights).sum().backward()

        return step

    return build


@pytest.mark.parametrize(("size", "rounded"), [(64, 64), (40, 64), (80, 96), (160, 192)])
def test_the_backward_of_flash_attention_accumulates_in_fp32(size, rounded):
    """200 tokens round up to 256, heads to multiples of 32 up to 128 and of 64 beyond (flash_api.cpp, mha_bwd)."""
    assert _scratch(_attention(size=size), "_scaled_dot_product_flash_attention_backward") == {
        "softmax_d": 2 * 4 * 256 * 4,
        "dq_accum": 2 * 256 * 4 * rounded * 4,
    }


def test_shared_key_heads_are_spread_out_in_the_backward():
    """With 2 key heads for 4 query heads dK and dV are first made for 4."""
    held = _scratch(_attention(key_heads=2), "_scaled_dot_product_flash_attention_backward")
    assert held["dk_expanded"] == held["dv_expanded"] == 2 * 200 * 4 * 64 * 2


def test_the_backward_of_efficient_attention():
    """In FP32 it holds the sums of dO·O, one a query in FP32; in halves also a workspace of unknown size."""
    op = "_scaled_dot_product_efficient_attention_backward"
    assert _scratch(_attention(torch.float32), op) == {"delta": 2 * 4 * 200 * 4}


def test_what_cudnn_decides_is_unknown_by_name():
    """A convolution's workspace is in no source: it has a name and no size, and adds nothing to what is known."""

    def build():
        model, x = nn.Conv2d(3, 4, 3), torch.ones(1, 3, 8, 8)
        return lambda: model(x).sum().backward()

    held = _scratch(build, "convolution")
    assert held == {"cuDNN workspace of a convolution": None}
    trace = trace_step(build, steps=1, target="cuda", chip="A100 SXM 80GB")
    assert all(known_bytes(buffers) == 0 for buffers in scratch_by_call(trace.calls).values())


def test_the_peak_with_what_a_kernel_holds():
    """Inside the embedding's backward live what lived before it, its result and its buffers."""
    trace = trace_step(_embedding(65536, vocabulary=10), steps=1, target="cuda", chip="A100 SXM 80GB")
    index = next(i for i, call in enumerate(trace.calls) if "embedding_dense_backward" in call.signature.op)
    inside = inside_by_call(trace.calls, trace.timeline)
    partial = 65536 // 10 + 10
    assert inside[index] == 10 * 64 * 4 + 2 * 65536 * 8 + 3 * 10 * 8 + 2 * 8 + partial * 8 + partial * 64 * 4
    before = trace.timeline.curve()[trace.timeline.call_positions[index]]
    assert trace.timeline.peak(internal=inside).peak_bytes >= before + inside[index]


def test_the_gradient_of_a_weight_for_every_token_holds_a_buffer():
    """4 x 256 tokens of width 1,024: 16 blocks an output, 4 B x 1,024 x 16 x 32 x 4 = 8 MiB, and 8 semaphores."""

    def build():
        x, weight = torch.ones(4, 256, 1024), torch.ones(1024, requires_grad=True)
        return lambda: (x * weight).sum().backward()

    trace = trace_step(build, target="cuda")
    held = [buffer.num_bytes for buffers in scratch_by_call(trace.calls).values() for buffer in buffers]
    assert held == 2 * [4 * 1024 * 16 * 32 * 4, 8 * 4]
