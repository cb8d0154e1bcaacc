import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import units

POSITIVE = st.floats(min_value=1e-3, max_value=1e20)
WHOLE = st.integers(1, 10**20)
HALF_OF_THE_THIRD_FIGURE = 0.5e-2 * (1 + 1e-9)


@given(WHOLE)
def test_whole_amounts_keep_three_figures(n: int):
    """What is shown of a count, of bytes or of work is within half of the third figure, or is the number itself."""
    assert units.parse_count(units.format_count(n)) == pytest.approx(n, rel=HALF_OF_THE_THIRD_FIGURE)
    assert units.parse_flops(units.format_flops(n)) == pytest.approx(n, rel=HALF_OF_THE_THIRD_FIGURE)
    for text in (units.format_bytes(n), units.format_bytes_decimal(n)):
        assert units.parse_bytes(text) == pytest.approx(n, rel=HALF_OF_THE_THIRD_FIGURE)


@given(POSITIVE)
def test_rates_keep_their_figures(x: float):
    """Three figures of a rate, four of a computing rate, as data sheets give them."""
    assert units.parse_rate(units.format_rate(x)) == pytest.approx(x, rel=HALF_OF_THE_THIRD_FIGURE)
    shown = units.parse_flops_per_s(units.format_flops_per_s(x))
    assert shown == pytest.approx(x, rel=HALF_OF_THE_THIRD_FIGURE / 10)


@given(st.floats(min_value=1e-9, max_value=1e10))
def test_durations_are_rounded_to_their_smaller_unit(s: float):
    """Below a minute three figures; above it the nearest second, minute or hour."""
    unit = 1 if s < 3600 else 60 if s < 86400 else 3600
    allowed = HALF_OF_THE_THIRD_FIGURE * s if s < 60 else unit / 2
    assert units.parse_duration(units.format_duration(s)) == pytest.approx(s, abs=allowed, rel=0)


@given(st.floats(min_value=0.01, max_value=1e15), st.sampled_from(["USD", "EUR", "CHF"]))
def test_money_keeps_its_currency(x: float, currency: str):
    """Cents, whole units or three figures, whichever is the finest that the size deserves."""
    allowed = 0.005 * (1 + 1e-9) if x < 1000 else max(0.5, HALF_OF_THE_THIRD_FIGURE * x if x >= 999_999 else 0)
    shown, currency_shown = units.parse_money(units.format_money(x, currency))
    assert shown == pytest.approx(x, abs=allowed, rel=0)
    assert currency_shown == currency


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (units.format_count(8_030_261_248), "8.03B"),
        (units.format_count(70 * 10**9), "70B"),
        (units.format_count(7 * 10**9 + 1), "7.00B"),
        (units.format_count(999_999), "1.00M"),
        (units.format_count(999), "999"),
        (units.format_count(10**24), "1.00e24"),
        (units.format_bytes(49152 * 12288 * 4), "2.25 GiB"),
        (units.format_bytes(81559 * 2**20), "79.6 GiB"),
        (units.format_bytes(1000), "1,000 B"),
        (units.format_bytes(1024**2 - 1), "1.00 MiB"),
        (units.format_bytes(-3 * 2**30), "-3 GiB"),
        (units.format_bytes_decimal(80e9), "80 GB"),
        (units.format_flops(1.973e12), "1.97 TFLOP"),
        (units.format_flops(6.3e24), "6.30e24 FLOP"),
        (units.format_flops_per_s(989.4e12), "989.4 TFLOP/s"),
        (units.format_flops_per_s(1979e12), "1.979 PFLOP/s"),
        (units.format_rate(3.35e12), "3.35 TB/s"),
        (units.format_duration(144 * 86400 + 2 * 3600), "144d 02h"),
        (units.format_duration(1.83), "1.83 s"),
        (units.format_duration(0.0123), "12.3 ms"),
        (units.format_duration(0.9999), "1.00 s"),
        (units.format_duration(59.96), "1m 00s"),
        (units.format_duration(3599.6), "1h 00m"),
        (units.format_duration(86399), "1d 00h"),
        (units.format_duration(0), "0 s"),
        (units.format_duration(-90), "-1m 30s"),
        (units.format_money(2.8), "$2.80"),
        (units.format_money(999.996), "$1,000"),
        (units.format_money(12.5e6), "$12.5M"),
        (units.format_money(0.0004), "$0.0004"),
        (units.format_money(-3.5), "-$3.50"),
        (units.format_percent(0.431), "43.1 %"),
        (units.format_percent(1), "100 %"),
        (units.format_percent(1 / 3), "33.3 %"),
        (units.group_digits(8_030_261_248), "8,030,261,248"),
        (units.format_number(math.inf), "inf"),
        (units.format_number(9.999), "10.0"),
        (units.format_number(0.00001), "1.00e-5"),
    ],
)
def test_examples(shown: str, text: str):
    """Whole values drop trailing zeros, rounded ones keep three figures, and a carry moves to the next unit."""
    assert shown == text


@pytest.mark.parametrize(
    "show",
    [
        units.format_count,
        units.format_bytes,
        units.format_bytes_decimal,
        units.format_flops,
        units.format_flops_per_s,
        units.format_rate,
        units.format_duration,
        units.format_money,
        units.format_number,
        units.format_percent,
        units.group_digits,
    ],
)
def test_unknown_is_never_zero(show):
    """An unknown amount says so, and NaN or infinity show as themselves instead of failing."""
    assert show(None) == "unknown"
    assert "nan" in show(math.nan)
    assert "inf" in show(-math.inf)
