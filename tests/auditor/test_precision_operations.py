import math

import pytest
import torch
from torch.nn import functional

from torchledger.auditor.precision_census import count, merged
from torchledger.auditor.precision_operations import Operations, row_sum


def seen_of(run):
    found = Operations()
    with found.looking(lambda: "here"):
        run()
    return found


def tensors(heads=2, keys=2, length=12, width=16):
    torch.manual_seed(0)
    return (
        torch.randn(3, heads, length, width, requires_grad=True), torch.randn(3, keys, length, width),
        torch.randn(3, keys, length, width),
    )  # fmt: skip


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("keys", [1, 2])
def test_logits_of_fused_attention_are_those_of_its_pairs(is_causal, keys):
    """Query · key / √16 of all pairs, or of the pairs up to each row's own position; keys may serve several heads."""
    q, k, v = tensors(keys=keys)
    found = seen_of(lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=is_causal, enable_gqa=keys == 1))
    logits = (q @ k.repeat_interleave(2 // keys, 1).transpose(-1, -2) / 4).detach()
    if is_causal:
        logits = logits[..., torch.ones(12, 12).tril().bool()]
    census = found.logits["here"].census
    assert census.elements == logits.numel()
    assert census.largest == pytest.approx(logits.abs().max().item(), rel=1e-5)
    assert found.logits["here"].before_scaling == pytest.approx(4 * logits.abs().max().item(), rel=1e-5)


def test_logits_of_attention_by_hand_leave_out_what_a_mask_put_there():
    """The inputs of a softmax without -infinity, the least number of the format, and the -10,000 of BERT."""
    q, k, _ = tensors()
    scores = (q @ k.transpose(-1, -2)).detach()
    above = torch.ones(12, 12).triu(1).bool()
    expected = count(scores[..., ~above].contiguous())
    for masked in (-math.inf, torch.finfo(torch.float32).min, -10000.0):
        found = seen_of(lambda masked=masked: scores.masked_fill(above, masked).softmax(-1))
        assert found.logits["here"].census == merged((expected,))


def test_an_operation_that_makes_infinity_of_finite_numbers_is_the_first_named():
    """300² = 90,000 is beyond FP16; the square is named and not the sum after it."""
    x = torch.full((4,), 300.0, dtype=torch.float16)

    def run():
        square = x * x
        square.sum()

    found = seen_of(run)
    assert (found.broken.operation, found.broken.place, found.broken.format) == ("mul", "here", "float16")


def test_masks_are_not_broken_numbers():
    """-infinity in a mask, or filled in, is on purpose, and a softmax over it is finite."""
    found = seen_of(
        lambda: (torch.zeros(2, 2).masked_fill(torch.eye(2).bool(), -math.inf) + torch.zeros(2, 2)).softmax(-1)
    )
    assert found.broken is None


def test_our_own_arithmetic_is_not_seen_while_paused():
    """A softmax in a pause is nobody's."""
    found = Operations()
    with found.looking(lambda: "here"), found.paused():
        torch.zeros(2, 3, 4).softmax(-1)
    assert found.softmaxes == {}


def test_a_sum_in_bf16_stops_where_its_step_is_twice_the_term():
    """2^-k added 2^k times stops at 256 terms in BF16 (8 bits) and at 2,048 in FP16 (11 bits): a tie goes to even."""
    row = torch.full((1, 4096), 2.0**-12)
    assert row_sum(row, "BF16") == 256 / 4096
    assert row_sum(row, "FP16") == 2048 / 4096
    assert math.isnan(row_sum(torch.full((1, 20_000), 1 / 20_000), "FP16"))
