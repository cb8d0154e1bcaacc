import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.auditor.init_uses import Uses


def _gates(function, *inputs):
    with Uses(nn.Identity(), lambda: "here") as watch:
        function(*inputs)
    return watch.seen.gates


def test_a_relu_is_closed_where_no_position_opens_it():
    """Units 0 and 1 of 8 are negative for all 40 rows: a quarter is closed; for a few rows nothing is said."""
    x = torch.rand(40, 8)
    x[:, :2] *= -1
    for relu in (torch.relu, torch.relu_, functional.relu, lambda t: t.clamp_min(0)):
        (gate,) = _gates(relu, x.clone())
        assert (gate.kind, gate.share, gate.count, gate.place) == ("relu", 0.25, 8, "here")
    assert _gates(torch.relu, x[:20]) == []
    assert _gates(torch.relu, torch.zeros(40, 8)) == []  # nothing came in: no fault of the ReLU's


def test_channels_of_an_image_are_its_units():
    """A convolution's unit is a channel, over all images and places."""
    x = torch.rand(2, 4, 6, 6)
    x[:, 3] *= -1
    assert _gates(torch.relu, x)[0].share == 0.25


@pytest.mark.parametrize(("function", "low", "high"), [(torch.tanh, -0.99, 0.99), (torch.sigmoid, 0.01, 0.99)])
def test_saturation_is_the_share_of_values_at_an_end(function, low, high):
    """Of a half, a large and a small and two far values, the last two are at an end: tanh'(x) there is 0.02."""
    x = torch.tensor([0.5, 1.0, -1.0, 9.0, -9.0])
    out = function(x)
    assert ((out < low) | (out > high)).tolist() == [False, False, False, True, True]
    assert _gates(function, x)[0].share == pytest.approx(0.4)


def test_softmax_says_the_mean_of_the_largest_probability():
    """Equal scores over 16 choices give 1/16, one score 100 above the others gives 1; masked choices do not count."""
    equal = torch.zeros(4, 16)
    assert _gates(lambda x: x.softmax(-1), equal)[0].share == pytest.approx(1 / 16)
    chosen = equal.clone()
    chosen[:, 3] = 100
    assert _gates(lambda x: x.softmax(-1), chosen)[0].share == pytest.approx(1)
    masked = equal.masked_fill(torch.arange(16) >= 10, -float("inf"))
    assert _gates(lambda x: x.softmax(-1), masked)[0].share == pytest.approx(1 / 10)
    assert _gates(lambda x: x.softmax(-1), equal[:, :7]) == []  # one of seven may well be chosen


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_fused_attention_is_looked_at_as_the_one_written_out(is_causal, groups):
    """The last queries' probabilities are those of softmax(q·kᵀ/sqrt(size)), masks and shared keys included."""
    generator = torch.Generator().manual_seed(0)
    query = 3 * torch.randn(2, 4, 40, 16, generator=generator, requires_grad=True)
    keys, values = (torch.randn(2, 4 // groups, 40, 16, generator=generator) for _ in range(2))
    (gate,) = _gates(
        lambda: functional.scaled_dot_product_attention(query, keys, values, is_causal=is_causal, enable_gqa=groups > 1)
    )
    scores = query[0] @ keys[0].repeat_interleave(groups, 0).transpose(-1, -2) / 4
    if is_causal:
        scores = scores.masked_fill(~torch.ones(40, 40, dtype=torch.bool).tril(), -float("inf"))
    assert gate.share == pytest.approx(scores.softmax(-1)[:, -32:].amax(-1).mean().item(), rel=1e-5)
