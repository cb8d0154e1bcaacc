import torch

from torchledger.auditor.precision_census import count
from torchledger.auditor.precision_scale import loss_scale, lost_at, tried


def test_gradients_of_1e_8_are_0_in_fp16_and_saved_by_a_scale():
    """1e-8 is below half of FP16's smallest, 2^-25 = 3e-8; times 2^42 it is 43,980, and times 2^43 beyond 65,504."""
    found = loss_scale([count(torch.full((100,), 1e-8))])
    assert (found.unscaled, found.scaled, found.exponent) == (1.0, 0.0, 42)


def test_the_largest_gradient_of_all_bounds_the_scale():
    """With a gradient of 1,000 beside those of 1e-8 the scale is 2^6, as 1,000 · 64 = 64,000; 6.4e-7 then is no 0."""
    found = loss_scale([count(torch.full((100,), 1e-8)), count(torch.tensor([1000.0]))])
    assert found.exponent == 6
    assert found.unscaled == 100 / 101
    assert found.scaled == 0


def test_a_scale_is_no_help_where_gradients_span_more_than_fp16():
    """60,000 allows no scale at all, so 1e-8 stays 0."""
    found = loss_scale([count(torch.tensor([60000.0, 1e-8]))])
    assert (found.exponent, found.scaled) == (0, 0.5)


def test_no_gradients_need_no_scale():
    """All zero: there is nothing that a scale could save."""
    assert loss_scale([count(torch.zeros(5))]).exponent is None


def test_the_table_of_scales_says_where_a_gradient_overflows():
    """Every scale up to the best fits, every one after it does not, and less is lost the larger it is."""
    gradients = [count(torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-6)]
    best = loss_scale(gradients).exponent
    rows = tried(gradients, best)
    assert [overflows for _, _, overflows in rows] == [exponent > best for exponent, _, _ in rows]
    lost = [each.to_zero for _, each, _ in rows]
    assert lost == sorted(lost, reverse=True)
    assert lost_at(gradients, 0).to_zero == int(
        (torch.randn(1000, generator=torch.Generator().manual_seed(0)) * 1e-6).half().eq(0).sum()
    )
