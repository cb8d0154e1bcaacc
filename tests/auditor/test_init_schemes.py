import math

import pytest
import torch

from torchledger.auditor.init_schemes import (
    LIMIT,
    Sample,
    Scheme,
    match,
    matches,
    schemes,
    shapes,
    truncated_kurtosis,
    truncated_share,
)
from torchledger.auditor.init_weights import sample_of

IN, OUT = 256, 1024
STDS = {
    "fan_in": math.sqrt(1 / IN),
    "xavier": math.sqrt(2 / (IN + OUT)),
    "kaiming": math.sqrt(2 / IN),
    "gpt2": 0.02,
    "gpt2, residual": 0.02 / math.sqrt(24),
    "unscaled": 1.0,
    "mup, output": 1 / IN,
}


def _normal(std, *, seed=0, shape=(OUT, IN)):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * std


def _holding(tensor, **known):
    return {m.scheme.name for m in matches(sample_of(tensor), schemes(IN, OUT, **known)) if m.holds}


@pytest.mark.parametrize("name", STDS)
def test_each_scheme_is_known_by_its_spread_alone(name):
    """A normal matrix of a scheme's standard deviation is of that scheme, and of none with another."""
    found = _holding(_normal(STDS[name]), writes=24)
    assert name in found
    assert all(math.isclose(STDS[other], STDS[name], rel_tol=0.01) for other in found & set(STDS))


def test_what_is_half_a_percent_off_is_seen_where_the_matrix_is_large_and_not_where_it_is_small():
    """The error of a standard deviation is 1/sqrt(2n) of it: 0.14 % of 262,144 values, 2.2 % of 1,024."""
    off = STDS["fan_in"] * 1.01
    assert "fan_in" not in _holding(_normal(off))
    assert "fan_in" in _holding(_normal(off, shape=(4, 256)))
    assert sample_of(_normal(1.0)).error == pytest.approx(1 / math.sqrt(2 * IN * OUT), rel=0.02)


def test_torchs_own_initialisers_are_recognised():
    """What torch.nn.init and a fresh nn.Linear draw is named, uniform draws as well."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.empty(OUT, IN)
    for draw, name in (
        (torch.nn.init.xavier_uniform_, "xavier"),
        (torch.nn.init.xavier_normal_, "xavier"),
        (torch.nn.init.kaiming_normal_, "kaiming"),
    ):
        assert name in _holding(draw(weight, generator=generator))
    torch.nn.init.kaiming_uniform_(weight, a=math.sqrt(5), generator=generator)
    assert _holding(weight) == {"torch default"}


@pytest.mark.parametrize(("cut", "shape"), [(2.0, "cut at 2"), (3.0, "cut at 3")])
def test_a_truncated_draw_has_the_spread_that_the_formula_says(cut, shape):
    """What ±2 or ±3 standard deviations cut off is known, and counted when a scheme is held against it."""
    std = STDS["fan_in"]
    weight = torch.nn.init.trunc_normal_(
        torch.empty(OUT, IN), 0, std, -cut * std, cut * std, generator=torch.Generator().manual_seed(1)
    )
    sample = sample_of(weight)
    assert sample.std == pytest.approx(std * truncated_share(cut), rel=0.005)
    assert sample.kurtosis == pytest.approx(truncated_kurtosis(cut), rel=0.01)
    assert shapes(sample) == (shape,)
    assert "fan_in" in _holding(weight)
    assert "fan_in" in _holding(weight / truncated_share(cut))  # corrected, as JAX and TensorFlow do


def test_a_cut_at_an_absolute_bound_cuts_nothing():
    """By default torch cuts at an absolute ±2: of weights of 0.02 that is ±100 of their own spreads."""
    weight = torch.nn.init.trunc_normal_(torch.empty(OUT, IN), 0, 0.02, generator=torch.Generator().manual_seed(1))
    assert shapes(sample_of(weight)) == ("normal",)
    assert weight.std().item() == pytest.approx(0.02, rel=0.005)


def test_shapes_that_are_not_drawn_are_told_apart():
    """A uniform draw is bounded at sqrt(3) of its spread; a constant has none; two values are no draw."""
    generator = torch.Generator().manual_seed(0)
    assert shapes(sample_of(torch.rand(OUT, IN, generator=generator) - 0.5)) == ("uniform",)
    assert shapes(sample_of(torch.full((8, 8), 0.5))) == ("constant",)
    assert shapes(sample_of(torch.randn(OUT, IN, generator=generator).sign())) == ("other",)


def test_a_true_scheme_is_hardly_ever_denied():
    """Of 2,000 small normal matrices none lies beyond the limit: the chance of one is 2,000 in 150,000."""
    scheme = Scheme("fan_in", "1/sqrt(in)", 1.0)
    draws = torch.randn(2000, 512, generator=torch.Generator().manual_seed(3))
    errors = [match(sample_of(draw[None]), scheme).errors for draw in draws]
    assert max(map(abs, errors)) < LIMIT
    assert torch.tensor(errors).std().item() == pytest.approx(1, rel=0.1)


def test_nothing_is_held_against_a_constant():
    """A matrix without a spread follows no scheme."""
    assert matches(Sample(64, 0.0, 0.0, 1.0, 0.0), schemes(8, 8)) == ()
