import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.auditor import Subject, audit_precision
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


class Probabilities(nn.Module):
    """A softmax, or its logarithm, over a long row, in a format."""

    def __init__(self, length, dtype, *, is_log=False):
        super().__init__()
        self.row, self.dtype, self.is_log = nn.Parameter(torch.zeros(1, length)), dtype, is_log

    def forward(self, x):
        """The row's sum, weighted."""
        made = (functional.log_softmax if self.is_log else functional.softmax)(self.row.to(self.dtype), -1)
        return (made.float() * x).sum()


def audited(model, x, precision):
    return audit_precision(Subject("toy", model, x, precision=precision))


def test_a_softmax_over_a_million_entries_in_fp16_is_off():
    """1e-6 is 16.8 of FP16's smallest steps and becomes 17: the row adds up to 17 · 2^-24 · 10^6 = 1.0133."""
    x = torch.ones(1, 10**6)
    record = audited(Probabilities(10**6, torch.float16), x, "fp16")
    found = next(each for each in record.findings if each.message.startswith("softmax"))
    assert (found.severity, found.evidence["length"]) == ("warning", 10**6)
    assert found.evidence["off"] == pytest.approx(17 * 2.0**-24 * 10**6 - 1)


def test_a_long_softmax_added_up_in_bf16_stops():
    """4,096 probabilities of 2^-12: BF16 has 8 bits, so a sum stops at 256 of them, which is 2^-4."""
    x = torch.ones(1, 4096)
    record = audited(Probabilities(4096, torch.bfloat16), x, "bf16")
    found = next(each for each in record.findings if each.message.startswith("softmax"))
    assert (found.severity, found.evidence["sum"]) == ("note", 256 * 2.0**-12)


def test_log_probabilities_in_bf16_are_coarse():
    """Over 50,000 entries they are around -ln 50,000 = -10.8 nats, where BF16's steps are 1/16 of a nat."""
    torch.manual_seed(0)
    model = Probabilities(50_000, torch.bfloat16, is_log=True)
    nn.init.normal_(model.row)
    record = audited(model, torch.ones(1, 50_000), "bf16")
    found = next(each for each in record.findings if each.message.startswith("log_softmax"))
    # Between 8 and 16 nats BF16's steps are 2^-4, and rounding errors have a root mean square of a step over √12.
    assert found.evidence["off"] == pytest.approx(2.0**-4 / math.sqrt(12), rel=0.2)
