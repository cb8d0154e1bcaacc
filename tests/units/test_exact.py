from hypothesis import given
from hypothesis import strategies as st

from torchledger import units

AMOUNTS = st.integers(0, 10**20) | st.integers(0, 10**6).flatmap(
    lambda n: st.sampled_from([n * 10**3, n * 10**6, n * 10**9, n * 2**20, n * 2**30, n * 2**40])
)
FLOATS = st.floats(min_value=0, max_value=1e270)


@given(AMOUNTS)
def test_whole_amounts_read_back(n: int):
    """The exact text of a count or of bytes is the number again, digits in groups included."""
    assert units.parse_count(units.format_count_exact(n)) == n
    assert units.parse_count(units.group_digits(n)) == n
    assert units.parse_bytes(units.format_bytes_exact(n)) == n


@given(FLOATS)
def test_rates_read_back(x: float):
    """The exact text of a rate is the same float again."""
    assert units.parse_rate(units.format_rate_exact(x)) == x
    assert units.parse_flops_per_s(units.format_flops_per_s_exact(x)) == x


@given(st.floats(min_value=0, max_value=1e15) | st.integers(0, 10**9).map(float))
def test_durations_read_back(s: float):
    """The exact text of a duration is the same float again."""
    assert units.parse_duration(units.format_duration_exact(s)) == s


def test_the_exact_text_is_the_shortest():
    """A whole multiple is written in the unit that leaves the smallest number."""
    assert units.format_bytes_exact(1024) == "1 KiB"
    assert units.format_bytes_exact(1000) == "1 kB"
    assert units.format_bytes_exact(2**30 * 10**9) == "1,000,000,000 GiB"
    assert units.format_bytes_exact(0) == "0 B"
    assert units.format_count_exact(1_500_000) == "1,500k"
    assert units.format_duration_exact(86400.0) == "1d"
    assert units.format_duration_exact(45.0) == "45.0 s"
