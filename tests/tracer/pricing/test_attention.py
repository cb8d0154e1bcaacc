"""Attention kernels by the layout that each of them takes, counted pair by pair."""

import pytest
import torch

from torchledger.ledger import Convention
from torchledger.tracer import trace_step
from torchledger.tracer.pricing import price
from torchledger.tracer.signature import Signature, TensorMeta

B, H, KV, S, K, h = 2, 4, 2, 6, 9, 8
_ATEN = torch.ops.aten


def _meta(*shape, dtype=torch.bfloat16):
    stride = [1]
    for size in reversed(shape[1:]):
        stride.insert(0, stride[0] * size)
    return TensorMeta(shape, tuple(stride), dtype)


def _call(op, named, results=()):
    """Price of an operation with arguments by name; what the schema wants besides is left at a plain value."""
    packet, overload = op.split(".")
    schema = getattr(getattr(_ATEN, packet), overload)._schema
    plain = {"Tensor": _meta(1), "int": 0, "SymInt": 0, "float": 0.0, "bool": False}
    values = []
    for argument in schema.arguments:
        if argument.kwarg_only:
            continue
        default = argument.default_value if argument.has_default_value() else plain.get(str(argument.real_type))
        values.append(named.get(argument.name, default))
    kwargs = tuple((k, v) for k, v in named.items() if any(a.name == k and a.kwarg_only for a in schema.arguments))
    return price(Signature(f"aten.{op}", tuple(values), kwargs), results).pieces


def _count(queries, keys, sees):
    return sum(1 for q in range(queries) for k in range(keys) if sees(q, k))


def _heads(tokens, heads=H):
    return _meta(B, heads, tokens, h)


def _rows(tokens, heads=H):
    return _meta(B, tokens, heads, h)


BY_HEADS = [
    "_scaled_dot_product_flash_attention.default",
    "_scaled_dot_product_flash_attention_for_cpu.default",
    "_scaled_dot_product_efficient_attention.default",
    "_scaled_dot_product_cudnn_attention.default",
    "_scaled_dot_product_fused_attention_overrideable.default",
]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("op", BY_HEADS)
def test_kernels_by_heads(op, causal):
    """[batch, heads, tokens, size], grouped keys; causality has its corner at the top left."""
    named = {"query": _heads(S), "key": _heads(K, KV), "value": _heads(K, KV), "is_causal": causal, "attn_bias": None}
    forward = _call(op, named)[0]
    pairs = _count(S, K, lambda q, k: not causal or k <= q)
    assert forward.work.flops_full == 4 * B * H * S * K * h
    assert forward.work.flops_exact == 4 * B * H * pairs * h
    back = _call(op.replace(".default", "_backward.default"), named | {"attn_mask": None})[0]
    assert back.work.flops_full == 8 * B * H * S * K * h
    assert back.work.flops_executed == 10 * B * H * S * K * h


@pytest.mark.parametrize(("causal", "left", "right"), [
    (False, None, None), (True, None, None), (True, 2, 0), (False, 2, 1), (False, None, 2), (False, -1, -1),
])  # fmt: skip
def test_flash_attention_by_tokens(causal, left, right):
    """[batch, tokens, heads, size]: heads and length are not swapped; causality and window sit at the bottom right."""
    named = {
        "query": _rows(S), "key": _rows(K, KV), "value": _rows(K, KV), "is_causal": causal, "window_size_left": left,
        "window_size_right": right, "cum_seq_q": None, "cum_seq_k": None,
    }  # fmt: skip
    low = None if left in {None, -1} else left
    high = 0 if causal else None if right in {None, -1} else right

    def sees(q, k):
        at = q + K - S
        return (low is None or k >= at - low) and (high is None or k <= at + high)

    piece = _call("_flash_attention_forward.default", named)[0]
    assert piece.work.flops_full == 4 * B * H * S * K * h
    assert piece.work.flops_exact == 4 * B * H * _count(S, K, sees) * h


@pytest.mark.parametrize(("mask_type", "window"), [(0, None), (1, None), (2, None), (2, 3)])
def test_efficient_attention_by_tokens(mask_type, window):
    """Mask types: none, causal from the top left, causal from the bottom right; a window counts the query itself."""
    named = {
        "query": _rows(S), "key": _rows(K), "value": _rows(K), "custom_mask_type": mask_type, "window_size": window,
        "bias": None, "cu_seqlens_q": None, "cu_seqlens_k": None,
    }  # fmt: skip

    def sees(q, k):
        at = q + (K - S if mask_type == 2 else 0)
        return (mask_type == 0 or k <= at) and (window is None or k > at - window)

    piece = _call("_efficient_attention_forward.default", named)[0]
    assert piece.work.flops_exact == 4 * B * H * _count(S, K, sees) * h


def test_packed_sequences_are_taken_to_be_equally_long_and_it_is_said():
    """Three sequences in twelve tokens: four by four pairs each; a longest one of four proves it."""
    q, ends = _meta(12, H, h), _meta(4, dtype=torch.int32)
    named = {"query": q, "key": q, "value": q, "cum_seq_q": ends, "cum_seq_k": ends}
    for longest, assumed in ((4, 0), (7, 1)):
        values = named | {"max_q": longest, "max_k": longest}
        schema = _ATEN._flash_attention_forward.default._schema
        plain = {"float": 0.0, "bool": False}
        args = tuple(values.get(a.name, plain.get(str(a.real_type))) for a in schema.arguments if not a.kwarg_only)
        priced = price(Signature("aten._flash_attention_forward.default", args), ())
        assert priced.pieces[0].work.flops_full == 3 * 4 * H * 4 * 4 * h
        assert len(priced.assumptions) == assumed
        assert (priced.pieces[0].work.flops_exact is None) == bool(assumed)


def test_a_mask_tensor_leaves_exact_flops_unknown():
    named = {"query": _heads(S), "key": _heads(S), "value": _heads(S), "attn_bias": _meta(S, S)}
    work = _call("_scaled_dot_product_efficient_attention.default", named)[0].work
    assert (work.flops_full, work.flops_exact) == (4 * B * H * S * S * h, None)


def test_dropout_inside_the_kernel_is_work_of_its_own():
    named = {"query": _heads(S), "key": _heads(S), "value": _heads(S), "dropout_p": 0.1}
    kinds = [piece.kind for piece in _call("_scaled_dot_product_flash_attention.default", named)]
    assert kinds == ["attention", "reduction", "random", "pointwise"]
    assert Convention().operations == "contractions", "so the count that users see does not change"


def test_a_scale_of_one_is_the_models_own():
    """A model that has scaled its queries itself passes a scale of 1 (OPT): heads are 8 wide still, not 1."""
    b, h, s, d = 2, 4, 16, 8

    def step():
        q = torch.zeros(b, h, s, d, requires_grad=True)
        torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True, scale=1.0).sum().backward()

    for target in ("cpu", "cuda"):
        lines = trace_step(lambda: step, steps=1, target=target).ledger.where(kind="attention")
        assert lines.where(phase="forward").flops == 4 * b * h * s * s * d
