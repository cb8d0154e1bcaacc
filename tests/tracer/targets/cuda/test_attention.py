"""Sizes of what the kernels save: torch/_meta_registrations.py, which states those of the CUDA kernels."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from torchledger.tracer import trace_step
from torchledger.tracer.targets.cuda.attention import attention_of_cuda
from torchledger.tracer.targets.cuda.attention_choice import AttentionRefused

B, H, T, D = 2, 4, 32, 64


def _attended(chip="a100", *, dtype=torch.bfloat16, size=D, tokens=T, key_heads=H, mask=None, target="cuda", **facts):
    def build():
        query = torch.randn(B, H, tokens, size, dtype=dtype, requires_grad=True)
        key, value = (torch.randn(B, key_heads, tokens, size, dtype=dtype, requires_grad=True) for _ in range(2))

        def step():
            given = None if mask is None else torch.ones(tokens, tokens, dtype=mask)
            functional.scaled_dot_product_attention(query, key, value, given, **facts).sum().backward()

        return step

    return trace_step(build, steps=1, target=target, **({"chip": chip} if target == "cuda" else {}))


def _made_by(trace, op):
    return [(block.shape, block.number_format) for block in trace.timeline.blocks if block.op == f"aten.{op}.default"]


def test_flash_saves_output_logsumexp_and_random_state():
    """Output [B, H, T, D], logsumexp [B, H, T] in FP32, seed and offset as 2 numbers, a spare one, an empty mask."""
    assert _made_by(_attended(is_causal=True), "_scaled_dot_product_flash_attention") == [
        ((B, H, T, D), "bf16"), ((B, H, T), "fp32"), ((2,), "uint64"), ((), "uint64"), ((0,), "bf16"),
    ]  # fmt: skip


def test_efficient_rounds_the_logsumexp_up_to_32_tokens():
    """33 tokens have 64 logsumexps a head; a mask is padded from 33 columns to 40 first."""
    trace = _attended(dtype=torch.float32, tokens=33, mask=torch.bool)
    assert _made_by(trace, "_scaled_dot_product_efficient_attention")[1] == ((B, H, 64), "fp32")
    assert _made_by(trace, "constant_pad_nd") == [((33, 40), "fp32")]


def test_cudnn_keeps_a_last_dimension_of_the_logsumexp():
    """On Hopper cuDNN runs first; its logsumexp is [B, H, T, 1]."""
    assert _made_by(_attended("h100"), "_scaled_dot_product_cudnn_attention")[1] == ((B, H, T, 1), "fp32")


def test_heads_are_padded_to_multiples_of_8_for_flash():
    """Heads of 60 enter the kernel as 64: three padded operands, and model FLOPs of 60 as on the CPU."""
    trace = _attended(size=60)
    assert _made_by(trace, "constant_pad_nd")[:3] == [((B, H, T, 64), "bf16")] * 3
    assert trace.ledger.flops == _attended(size=60, target="cpu").ledger.flops == 3 * 4 * B * H * T * T * 60


def test_padded_heads_are_executed():
    """Heads of 60 run as 64: two products forward and five backward of 2·B·H·T·T·64 each, under executed FLOPs."""
    assert _attended(size=60).executed_flops == (2 + 5) * 2 * B * H * T * T * 64
    forward = _attended(size=60).ledger.where(kind="attention", phase="forward")
    assert forward.total.bytes_read == 2 * 3 * B * H * T * 64


@pytest.mark.parametrize(
    ("facts", "factor"),
    [
        ({}, 3),
        ({"dtype": torch.float32}, 3),
        ({"dtype": torch.float64}, 3),
        ({"chip": "h100"}, 3),
        ({"key_heads": 2, "enable_gqa": True}, 3),
        ({"key_heads": 2, "enable_gqa": True, "dtype": torch.float32}, 3),
        ({"is_causal": True}, 3),
    ],
)
def test_model_flops_are_those_of_the_cpu(facts, factor):
    """Whatever kernel runs, forward is 4·B·H·T·T·D and backward twice that, on CUDA as on the CPU."""
    on_cpu = {name: fact for name, fact in facts.items() if name != "chip"}
    assert _attended(**facts).ledger.flops == factor * 4 * B * H * T * T * D
    assert _attended(target="cpu", **on_cpu).ledger.flops == factor * 4 * B * H * T * T * D


@pytest.mark.parametrize(
    ("backend", "op"),
    [
        (SDPBackend.EFFICIENT_ATTENTION, "_scaled_dot_product_efficient_attention"),
        (SDPBackend.CUDNN_ATTENTION, "_scaled_dot_product_cudnn_attention"),
        (SDPBackend.MATH, "bmm"),
    ],
)
def test_the_users_own_choice_is_followed(backend, op):
    """`sdpa_kernel(...)` in the step decides."""
    with sdpa_kernel(backend):
        assert _made_by(_attended(), op)


def test_calls_from_inside_are_seen():
    """`nn.MultiheadAttention` reaches the kernel through other functions; it is CUDA's all the same."""

    def build():
        attention, x = (
            nn.MultiheadAttention(D, H, batch_first=True, dtype=torch.bfloat16),
            torch.ones(B, T, D, dtype=torch.bfloat16),
        )
        return lambda: attention(x, x, x, need_weights=False)[0].sum().backward()

    trace = trace_step(build, steps=1, target="cuda")
    assert _made_by(trace, "_scaled_dot_product_flash_attention")


def test_a_kernel_that_was_asked_for_and_cannot_run():
    """Asking for flash attention of FP32 is refused, as it is on a GPU."""
    x = torch.ones(B, H, T, D)
    with attention_of_cuda((8, 0), "flash"), pytest.raises(AttentionRefused, match="flash"):
        functional.scaled_dot_product_attention(x, x, x)
    assert functional.scaled_dot_product_attention(x, x, x).shape == x.shape  # the CPU's own again
