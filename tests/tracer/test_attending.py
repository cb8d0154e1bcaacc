"""Attention that torch runs as two products is attention, its exact FLOPs those of the pairs that are let through."""

import pytest
import torch
from torch.nn import functional

from torchledger.tracer import trace_step

B, H, T, S, D, V = 2, 3, 5, 7, 8, 16  # values wider than queries: no fused kernel of the CPU takes them


def _traced(dropout=0.0, mask=None, *, is_causal=False):
    def build():
        q, k, v = (torch.zeros(B, H, n, d, requires_grad=True) for n, d in ((T, D), (S, D), (S, V)))

        def step():
            attend = functional.scaled_dot_product_attention
            attend(q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=is_causal).sum().backward()

        return step

    return trace_step(build, steps=1)


@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_a_causal_mask_lets_a_triangle_through(dropout):
    """Three times 2·pairs·(D + V) a head: 5·7 pairs in full, 1 + 2 + 3 + 4 + 5 let through."""
    trace = _traced(dropout, is_causal=True)
    assert trace.model_flops == 3 * 2 * B * H * T * S * (D + V)
    assert trace.exact_flops == 3 * 2 * B * H * (1 + 2 + 3 + 4 + 5) * (D + V)
    assert {line.kind for line in trace.ledger if line.work.flops_full and "matmul" in line.op} == {"attention"}


def test_without_a_mask_every_pair_is_let_through():
    assert _traced().exact_flops == 3 * 2 * B * H * T * S * (D + V)


def test_what_a_mask_lets_through_is_data():
    """The exact FLOPs are unknown, as a fused kernel's are."""
    trace = _traced(mask=torch.ones(T, S, dtype=torch.bool))
    assert trace.exact_flops is None
    assert trace.model_flops == 3 * 2 * B * H * T * S * (D + V)


def test_torch_has_its_own_again():
    before = functional.scaled_dot_product_attention
    _traced()
    assert functional.scaled_dot_product_attention is before
