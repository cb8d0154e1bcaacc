import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import units
from torchledger.units import UnitError

DAY, HOUR, MINUTE = 86400, 3600, 60


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("70B", 70 * 10**9),
        ("70G", 70 * 10**9),
        ("70b", 70 * 10**9),
        ("70 billion", 70 * 10**9),
        ("15T", 15 * 10**12),
        ("15 Trillion", 15 * 10**12),
        ("4.2M", 42 * 10**5),
        ("8.03B", 8_030_000_000),
        ("7k", 7000),
        ("3P", 3 * 10**15),
        ("1E", 10**18),
        ("1e12", 10**12),
        ("1e12k", 10**15),
        ("524_288", 524_288),
        ("8,030,261,248", 8_030_261_248),
        ("2**19", 524_288),
        (" 12 ", 12),
        ("0", 0),
        (7, 7),
        (7.0, 7),
    ],
)
def test_counts(text, count: int):
    """Suffixes of a count are decimal, and B is a billion."""
    assert units.parse_count(text) == count


@pytest.mark.parametrize("text", ["1.5", 1.5, "0.0001k", "70Q", "70GB", "12e", "1p", "-1", "nan", "", "0x10", True])
def test_what_is_no_count(text):
    """A count is whole, and has no unit."""
    with pytest.raises(UnitError, match="accepted: 70B"):
        units.parse_count(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80GB", 80 * 10**9),
        ("80GiB", 80 * 2**30),
        ("512 MiB", 512 * 2**20),
        ("1kB", 1000),
        ("1KB", 1000),
        ("1KiB", 1024),
        ("3TB", 3 * 10**12),
        ("80e9", 80 * 10**9),
        ("70B", 70),
        ("70 bytes", 70),
        ("0.5 KiB", 512),
        ("79.6 GiB", round(79.6 * 2**30)),
        (4096, 4096),
    ],
)
def test_bytes(text, size: int):
    """GB is 10^9, GiB is 2^30, and B after a number of bytes is a byte, not a billion."""
    assert units.parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("80G", "may mean GB .* or GiB"),
        ("80Gi", "may mean GB .* or GiB"),
        ("80k", "may mean KB .* or KiB"),
        ("80Gb", "means bits"),
        ("80 Gbit", "means bits"),
        ("1.5", "not a whole number of bytes"),
        ("80 GB/s", "no known unit"),
        ("80 gold", "no known unit"),
        ("-1 GB", "negative"),
    ],
)
def test_what_is_no_amount_of_bytes(text: str, reason: str):
    """What could be read in two ways, and what is no size at all, is refused."""
    with pytest.raises(UnitError, match=reason):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("3.35TB/s", 3.35e12),
        ("400Gb/s", 400e9 / 8),
        ("400 Gbps", 400e9 / 8),
        ("400 Gbit/s", 400e9 / 8),
        ("900 GBps", 900e9),
        ("3 GiB/s", 3 * 2**30),
        ("5 B/s", 5),
        ("8 bits/s", 1),
        ("3.35e12", 3.35e12),
        (2.5, 2.5),
    ],
)
def test_rates(text, rate: float):
    """A small b is a bit, an eighth of a byte."""
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "reason"), [("5 GB", "not per second"), ("5 gb/s", "no known"), ("5 GB/h", "not per"), ("-5 GB/s", "neg")]
)
def test_what_is_no_rate(text: str, reason: str):
    """A rate is per second."""
    with pytest.raises(UnitError, match=reason):
        units.parse_rate(text)


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("989.4 TFLOP/s", 989.4e12),
        ("989.4TFLOPS", 989.4e12),
        ("989.4 Tflops/s", 989.4e12),
        ("989.4T", 989.4e12),
        ("1.979 PFLOP/s", 1.979e15),
        ("1979 TOPS", 1.979e15),
        ("1979e12", 1979e12),
        ("5 FLOP/sec", 5),
        (5, 5),
    ],
)
def test_computing_rates(text, rate: float):
    """FLOP/s and FLOPS are speeds."""
    assert units.parse_flops_per_s(text) == rate


@pytest.mark.parametrize(
    ("text", "reason"),
    [("989 TFLOP", "TFLOP/s for a speed"), ("989 TFLOPs", "TFLOP/s for a speed"), ("9 GB/s", "unit")],
)
def test_work_is_not_speed(text: str, reason: str):
    """An amount of work where a speed is due is refused, with the spelling that is meant."""
    with pytest.raises(UnitError, match=reason):
        units.parse_flops_per_s(text)


@pytest.mark.parametrize(
    ("text", "flops"),
    [
        ("6.3e24", 63 * 10**23),
        ("1.97 TFLOP", 197 * 10**10),
        ("3 ZFLOPs", 3 * 10**21),
        ("5flop", 5),
        ("2k", 2000),
        (9, 9),
    ],
)
def test_work(text, flops: int):
    """Work is a whole number of operations, however large."""
    assert units.parse_flops(text) == flops


@pytest.mark.parametrize(
    ("text", "reason"), [("1 TFLOP/s", "a rate"), ("1 TFLOPS", "a rate"), ("1.5", "whole"), ("3 GB", "no known unit")]
)
def test_speed_is_not_work(text: str, reason: str):
    """A speed where work is due is refused."""
    with pytest.raises(UnitError, match=reason):
        units.parse_flops(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("3d 4h", 3 * DAY + 4 * HOUR),
        ("3d, 4h", 3 * DAY + 4 * HOUR),
        ("90s", 90),
        ("90", 90),
        ("1h30m", HOUR + 30 * MINUTE),
        ("144 days", 144 * DAY),
        ("144d 02h", 144 * DAY + 2 * HOUR),
        ("2 weeks", 14 * DAY),
        ("1.5 days", 36 * HOUR),
        ("3d 04:10", 3 * DAY + 4 * HOUR + 10 * MINUTE),
        ("01:02:03.5", HOUR + 2 * MINUTE + 3.5),
        ("12.3 ms", 0.0123),
        ("7 us", 7e-6),
        ("7 µs", 7e-6),
        ("7ns", 7e-9),
        (1.25, 1.25),
    ],
)
def test_durations(text, seconds: float):
    """Parts of a duration add up, in any order and without one for every unit."""
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("04:10", "hours:minutes or minutes:seconds"),
        ("1h 2h", "given twice"),
        ("1h 5", "has no unit"),
        ("1 M", "'M' is no known unit"),
        ("3 fortnights", "no known unit"),
        ("3d -4h", "negative"),
        ("", "empty"),
        ("soon", "does not begin with a number"),
    ],
)
def test_what_is_no_duration(text: str, reason: str):
    """An ambiguous, incomplete or negative duration is refused."""
    with pytest.raises(UnitError, match=reason):
        units.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "money"),
    [
        ("$2.80", (2.80, "USD")),
        ("2.80 EUR", (2.80, "EUR")),
        ("€2.80", (2.80, "EUR")),
        ("£ 3", (3, "GBP")),
        ("CHF 3", (3, "CHF")),
        ("USD 2.80", (2.80, "USD")),
        ("2.80", (2.80, "USD")),
        ("$12.5M", (12.5e6, "USD")),
        ("12.5 million EUR", (12.5e6, "EUR")),
        ("2.80 $", (2.80, "USD")),
        (2.8, (2.8, "USD")),
    ],
)
def test_money(text, money: tuple[float, str]):
    """A currency stands before or after the amount; none is US dollars."""
    assert units.parse_money(text) == money


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$3 EUR", "two currencies"),
        ("3 bananas", "neither"),
        ("-$3", "negative"),
        ("$-3", "negative"),
        ("$", "no number"),
    ],
)
def test_what_is_no_money(text: str, reason: str):
    """Two currencies, none that is known, or a debt are refused, and the message shows all that was written."""
    with pytest.raises(UnitError, match=reason) as error:
        units.parse_money(text)
    assert error.value.text == text


@pytest.mark.parametrize(
    "parse",
    [
        units.parse_count,
        units.parse_bytes,
        units.parse_rate,
        units.parse_flops,
        units.parse_flops_per_s,
        units.parse_duration,
        units.parse_money,
    ],
)
@given(text=st.text(alphabet="0123456789.,_-+*^ :/$eEkKMGTPiBbsdhmFLOPUSD", max_size=12))
def test_no_text_breaks_a_parser(parse, text: str):
    """A text is read or refused with UnitError; nothing else comes out."""
    try:
        parse(text)
    except UnitError as refusal:
        message = str(refusal)
    else:
        return
    assert message.startswith(f"cannot read {text!r} as ")


def test_a_prefix_never_overflows_a_float():
    """The largest number that is read, times the largest prefix, is still a float."""
    assert units.parse_flops_per_s("8e270 YFLOP/s") == 8e294
