"""Packed documents: exact attention is what happens within each, whichever kernel runs."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.attention.varlen import varlen_attn

from torchledger.tracer import trace
from torchledger.tracer.errors import TraceError

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about flex_attention without its compiler

B, H, D = 2, 3, 16
LENGTHS = (10, 30, 24)
T, DOCUMENTS = sum(LENGTHS), len(LENGTHS)
SQUARES = 10 * 10 + 30 * 30 + 24 * 24
TRIANGLES = 10 * 11 // 2 + 30 * 31 // 2 + 24 * 25 // 2
PER_PAIR = 4 * B * H * D
#: Forward twice, backward four times.
STEP = 3 * PER_PAIR


class Attention(nn.Module):
    """One attention by one of many ways; its operands [B, H, T, D] need gradients."""

    def __init__(self, attend):
        super().__init__()
        self.scale, self.attend = nn.Parameter(torch.ones(D)), attend

    def forward(self, x, documents):
        """The document of each token is data."""
        return self.attend(x * self.scale, documents)


def _causal(x, _):
    return functional.scaled_dot_product_attention(x, x, x, is_causal=True)


def _plain(x, _):
    return functional.scaled_dot_product_attention(x, x, x)


def _masked(x, documents):
    mask = documents[:, None] == documents[None, :]
    return functional.scaled_dot_product_attention(x, x, x, attn_mask=mask)


def _flex(x, documents):
    def visible(_batch, _head, q, k):
        return (q >= k) & (documents[q] == documents[k])

    return flex_attention(x, x, x, block_mask=create_block_mask(visible, None, None, T, T, device="cpu"))


def _flex_window(x, _):
    def visible(_batch, _head, q, k):
        return (q >= k) & (q - k < 16)

    return flex_attention(x, x, x, block_mask=create_block_mask(visible, None, None, T, T, device="cpu"))


def _flex_both_sides(x, _):
    def visible(_batch, _head, q, k):
        return (q - k).abs() < 7

    return flex_attention(x, x, x, block_mask=create_block_mask(visible, None, None, T, T, device="cpu"))


def _ends(x):
    return x.transpose(1, 2).reshape(-1, H, D), torch.zeros(B * DOCUMENTS + 1, dtype=torch.int32)


def _flash(x, _):
    packed, ends = _ends(x)
    return torch.ops.aten._flash_attention_forward(packed, packed, packed, ends, ends, 30, 30, 0.0, True, False)[0]


def _varlen(window):
    def attend(x, _):
        packed, ends = _ends(x)
        return varlen_attn(packed, packed, packed, ends, ends, 30, 30, window_size=window)

    return attend


def _seen(attend, lengths=LENGTHS):
    batch = (torch.zeros(B, H, T, D), torch.zeros(T, dtype=torch.long))
    options = {"loss": lambda y, _: y.float().sum(), "target": "cuda", "precision": "bf16"}
    return trace(Attention(attend), batch, document_lengths=lengths, **options)


@pytest.mark.parametrize(
    ("attend", "pairs"),
    [
        (_causal, TRIANGLES),
        (_plain, SQUARES),
        (_masked, TRIANGLES),
        (_flex, TRIANGLES),
        (_flash, TRIANGLES),
        (_varlen((-1, 0)), TRIANGLES),
        (_varlen((-1, -1)), SQUARES),
    ],
    ids=["causal", "plain", "mask", "flex", "flash", "varlen causal", "varlen"],
)
def test_exact_attention_is_the_documents_squares(attend, pairs):
    """Half the sum of l·(l+1) where it is causal or the mask is data, else the sum of l²: times 12·B·H·D for a step."""
    assert _seen(attend).exact_flops == STEP * pairs
    assert "attention stays within documents of 10, 30, 24 tokens" in _seen(attend).assumptions


@pytest.mark.parametrize(
    ("attend", "pairs"),
    [
        (_flex_window, sum(min(i + 1, 16) for length in LENGTHS for i in range(length))),
        (_varlen((15, 0)), sum(min(i + 1, 16) for length in LENGTHS for i in range(length))),
        (_varlen((2, 1)), sum(min(i + 2, n) - max(i - 2, 0) for n in LENGTHS for i in range(n))),
    ],
)
def test_a_window_is_kept_within_documents(attend, pairs):
    """Each token sees its window as far as its document goes."""
    assert _seen(attend).exact_flops == STEP * pairs


def test_bands_that_cannot_be_told_are_unknown():
    """A mask of both sides on whole sequences says nothing of how it looks within documents."""
    assert _seen(_flex_both_sides, ()).exact_flops == STEP * sum(min(i + 7, T) - max(i - 6, 0) for i in range(T))
    assert _seen(_flex_both_sides).exact_flops is None


@pytest.mark.parametrize("attend", [_flash, _varlen((-1, 0))], ids=["flash", "varlen"])
def test_a_kernel_of_sequences_end_to_end_runs_the_documents_alone(attend):
    """Model FLOPs are 12·B·H·D·l² summed, not those of equal lengths nor of one long sequence; executed 7/6 of that."""
    assert _seen(attend).model_flops == STEP * SQUARES
    assert _seen(attend).executed_flops == STEP * SQUARES * 7 // 6
    assert _seen(attend, (*LENGTHS, *LENGTHS)).model_flops == STEP * SQUARES
    equal = B * T // (B * DOCUMENTS)
    assert _seen(attend, ()).model_flops == STEP * DOCUMENTS * equal**2
    assert _seen(attend, ()).exact_flops is None


@pytest.mark.parametrize("lengths", [(40, 30), (16, 16, 16, 16)])
def test_documents_that_are_not_there_are_refused(lengths):
    """Their lengths add up to the sequence, and a kernel that was told ends has as many documents as it has ends."""
    with pytest.raises(TraceError, match="no attention runs over"):
        _seen(_flash, lengths)
