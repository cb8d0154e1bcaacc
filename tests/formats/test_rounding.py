from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.formats.rounding import ROUNDINGS, checked, rounds_away


@pytest.mark.parametrize(
    ("rounding", "quarter", "half", "half_of_odd", "three_quarters", "negative_half"),
    [
        ("nearest-even", False, False, True, True, False),
        ("nearest-away", False, True, True, True, True),
        ("toward-zero", False, False, False, False, False),
        ("up", True, True, True, True, False),
        ("down", False, False, False, False, True),
    ],
)
def test_the_five_modes_of_ieee(*, rounding, quarter, half, half_of_odd, three_quarters, negative_half):
    """IEEE 754-2019, section 4.3, at a quarter, half and three quarters of a unit."""

    def away(rest, *, is_odd=False, is_negative=False):
        return rounds_away(rest, 4, rounding, (0, 1), is_odd=is_odd, is_negative=is_negative)

    assert away(1) is quarter
    assert away(2) is half
    assert away(2, is_odd=True) is half_of_odd
    assert away(3) is three_quarters
    assert away(2, is_negative=True) is negative_half


@given(st.sampled_from([mode for mode in ROUNDINGS if mode != "stochastic"]), st.booleans(), st.booleans())
def test_what_is_exact_stays(rounding, is_odd, is_negative):
    """Nothing left over is nothing to round."""
    assert not rounds_away(0, 7, rounding, (0, 1), is_odd=is_odd, is_negative=is_negative)


@given(st.integers(1, 50), st.integers(1, 50))
def test_of_evenly_spaced_random_numbers_as_many_round_away_as_the_fraction_says(rest, whole):
    """Of the random numbers 0/n, 1/n, ... (n - 1)/n with n the denominator, exactly n · rest/whole round away."""
    rest %= whole
    away = [rounds_away(rest, whole, "stochastic", (k, whole), is_odd=False, is_negative=False) for k in range(whole)]
    assert sum(away) == rest


def test_random_numbers_are_read_exactly():
    """A float is its own ratio, a Fraction too."""
    assert checked("stochastic", 0.25) == ("stochastic", (1, 4))
    assert checked("stochastic", Fraction(1, 3)) == ("stochastic", (1, 3))
    assert checked("up", None)[0] == "up"
