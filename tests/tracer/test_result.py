"""Three numbers from one trace, what they are for, and how much of the step was counted."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS
from torchledger.ops import causal_pairs
from torchledger.tracer import TraceError, trace, trace_step

B, T, D, H = 2, 12, 16, 2
SQUARE = 2 * B * T * T * D  # one product of causal attention, all pairs
PROJECTION = 2 * B * T * D * 3 * D


class Attention(nn.Module):
    """Causal attention without an output projection."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(D, 3 * D, bias=False)

    def forward(self, x):
        """[b, t, d] -> a scalar."""
        b, t, d = x.shape
        q, k, v = (each.view(b, t, H, d // H).transpose(1, 2) for each in self.qkv(x).chunk(3, -1))
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True).square().mean()


def _traced(**options):
    return trace(Attention(), torch.zeros(B, T, D), optimizer=torch.optim.AdamW, **options)


def test_model_executed_and_exact():
    """Forward two squares, backward four; the flash kernel runs a fifth; exact is the triangle."""
    seen = _traced()
    products = 2 * PROJECTION  # forward and weight gradient; the input needs none
    assert seen.model_flops == products + 6 * SQUARE
    assert seen.executed_flops == products + 7 * SQUARE
    assert seen.exact_flops == products + 6 * 2 * B * causal_pairs(T) * D


def test_what_the_work_is_for():
    """Forward, the gradient of inputs, of weights; the optimizer has no contraction. They add up."""
    seen = _traced()
    assert seen.split(MODEL_FLOPS) == {
        "forward": PROJECTION + 2 * SQUARE,
        "input gradient": 4 * SQUARE,
        "weight gradient": PROJECTION,
        "other backward": 0,
        "optimizer": 0,
    }
    assert sum(seen.split().values()) == seen.executed_flops
    assert sum(part.total.bytes_read for part in seen.ledger.by_purpose().values()) == seen.ledger.total.bytes_read


def test_by_number_format():
    """Under autocast every contraction runs in bf16."""
    seen = _traced(precision="bf16")
    assert seen.by_number_format() == {
        "bf16": {
            "model_flops": seen.model_flops,
            "executed_flops": seen.executed_flops,
            "exact_flops": seen.exact_flops,
        }
    }


def test_documents_are_counted_one_by_one():
    """Lengths that fill the sequence; attention within each."""
    lengths = (5, 4, 3)
    pairs = sum(causal_pairs(length) for length in lengths)
    seen = _traced(document_lengths=lengths)
    assert seen.exact_flops == 2 * PROJECTION + 6 * 2 * B * pairs * D
    assert seen.model_flops == _traced().model_flops
    assert "within documents of 5, 4, 3 tokens" in seen.assumptions[-1]
    with pytest.raises(TraceError, match=r"no attention runs over 9 tokens"):
        _traced(document_lengths=(5, 4))


def test_coverage_and_completeness():
    """Every operation is counted or known to be free."""
    coverage = _traced().coverage
    assert coverage.share == 1.0
    assert coverage.num_counted > 0
    assert coverage.at_most_flops == 0


@torch.library.custom_op("torchledger_tests::mystery", mutates_args=())
def mystery(x: torch.Tensor) -> torch.Tensor:
    """An operation without a rule."""
    return x.clone()


@mystery.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_unknown_operation_is_named_counted_and_bounded():
    layer = nn.Linear(D, D)
    seen = trace_step(lambda: layer(mystery(mystery(torch.zeros(B, D)))).sum().backward())
    (unknown,) = seen.coverage.unknown
    assert (unknown.op, unknown.times) == ("torchledger_tests.mystery.default", 2)
    assert unknown.at_most_flops is None or unknown.at_most_flops > 0
    assert seen.coverage.share < 1
    assert not seen.ledger.is_complete
    assert seen.model_flops is None


def test_intensity_and_what_bounds_the_step():
    """A thin product is bound by memory, a large one by compute."""
    with torch.device("meta"):
        thin, wide = nn.Linear(4096, 4096, bias=False), nn.Linear(8192, 8192, bias=False)
    small = trace(thin, torch.empty(1, 4096, device="meta"), loss=lambda y, _: y.sum())
    large = trace(wide.bfloat16(), torch.empty(8192, 8192, device="meta").bfloat16(), loss=lambda y, _: y.sum())
    assert small.intensity < 1 < large.intensity
    assert small.bound_on("h100")["compute"] == 0
    seconds = large.bound_on("h100")
    assert seconds["compute"] == pytest.approx(2 * 2 * 8192**3 / 989.4e12)
    assert 0 < seconds["memory"] < seconds["compute"]


def test_kept_bytes_leave_out_what_stands_on_the_host():
    """What the projection keeps and attention's operands and results."""
    assert _traced().kept_bytes > 4 * B * T * 3 * D


def test_hardware_flops_contain_recompute():
    layer = nn.Sequential(nn.Linear(D, D, bias=False), nn.ReLU(), nn.Linear(D, D, bias=False))
    x = torch.zeros(B, D, requires_grad=True)

    def step():
        torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=True).sum().backward()

    seen = trace_step(step)
    assert seen.split(HARDWARE_FLOPS)["recompute"] == 2 * 2 * B * D * D
    assert seen.split(MODEL_FLOPS)["recompute"] == 0
    assert seen.executed_flops - seen.model_flops == 2 * 2 * B * D * D
