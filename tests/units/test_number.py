import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.units.number import Quantity, Ratio, UnitError, exact_number, split_number

LENGTH = Quantity("a length", "3, 4.5")


@given(st.integers(0, 10**40), st.integers(-60, 60), st.sampled_from(["", " m", "m"]))
def test_a_decimal_number_is_read_exactly(digits: int, exponent: int, rest: str):
    """No digit is lost to a float: the ratio is digits × 10^exponent."""
    number, unit = split_number(f"{digits}e{exponent}{rest}", LENGTH)
    if exponent >= 0:
        assert number.numerator == digits * 10**exponent * number.denominator
    else:
        assert number.numerator * 10**-exponent == digits * number.denominator
    assert unit == rest.strip()


@given(st.floats(min_value=0, max_value=1e270))
def test_the_repr_of_a_float_reads_back_to_it(x: float):
    """Reading rounds once and correctly, so every float up to 1e270 survives its own repr."""
    assert split_number(repr(x), LENGTH)[0].as_float() == x
    assert exact_number(x, LENGTH).as_float() == x


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234,567.5", 1234567.5),
        ("524_288", 524288),
        ("2**19", 2**19),
        ("2 ^ 10", 1024),
        ("1**999999", 1),
        ("0**5", 0),
        (".5", 0.5),
        ("5.", 5),
        ("+3", None),
    ],
)
def test_the_ways_to_write_a_number(text: str, value: float | None):
    """Groups of three, underscores, powers and bare points are numbers; a plus sign is not."""
    if value is None:
        with pytest.raises(UnitError):
            split_number(text, LENGTH)
    else:
        assert split_number(text, LENGTH)[0].as_float() == value


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("   ", "it is empty"),
        ("-3", "it is negative"),
        ("−3", "it is negative"),
        ("nan", "not a finite number"),
        ("-inf", "it is negative"),
        ("Infinity", "not a finite number"),
        ("many", "does not begin with a number"),
        ("٣", "does not begin with a number"),
        ("1,5", "ends oddly"),
        ("1,2345", "ends oddly"),
        ("1__0", "ends oddly"),
        ("1.2.3", "ends oddly"),
        ("12 34", "ends oddly"),
        ("1e400", "too large"),
        ("9**999999999", "too large"),
        ("1e-99999999999", "too small"),
        ("2**900", "too large"),
        ("1" * 201, "characters long"),
    ],
)
def test_nonsense_is_refused_with_its_reason(text: str, reason: str):
    """Whatever is not a non-negative finite number is a UnitError that names the reason and what is accepted."""
    with pytest.raises(UnitError, match=reason) as error:
        split_number(text, LENGTH)
    assert "accepted: 3, 4.5" in str(error.value)
    assert error.value.quantity == "a length"


@given(st.text(max_size=30))
def test_any_text_either_reads_or_is_refused(text: str):
    """No text makes the reader fail in another way than UnitError."""
    try:
        number, _ = split_number(text, LENGTH)
    except UnitError:
        return
    assert number.numerator >= 0


@pytest.mark.parametrize("value", [True, None, float("nan"), float("inf"), -1, -0.5])
def test_what_is_no_amount_is_refused(value):
    """Truth values, nothing, NaN, infinities and negative numbers are no amounts."""
    with pytest.raises(UnitError):
        exact_number(value, LENGTH)


def test_halves_round_up():
    """The nearest integer of 2 1/2 is 3, of 2 2/5 is 2."""
    assert Ratio(5, 2).nearest_int() == 3
    assert Ratio(12, 5).nearest_int() == 2
    assert Ratio(1, 3).plus(Ratio(2, 3)).nearest_int() == 1
