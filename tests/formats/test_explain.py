import math
from fractions import Fraction

import pytest

from torchledger import formats
from torchledger.formats import FormatError


def test_a_small_gradient_vanishes_in_fp16_and_not_in_bf16():
    """1e-8 is below half of FP16's smallest number 2^-24, and within BF16's range with an error of 0.1 %."""
    rows = {row.format: row for row in formats.explain_value("1e-8")}
    assert rows["FP16"].value == 0
    assert rows["FP16"].reason == "at most 2^-25, half of the smallest subnormal 2^-24 = 5.96e-8: rounds to zero"
    assert rows["FP16"].relative_error == -1
    assert rows["BF16"].value == pytest.approx(1.0012e-8, rel=5e-5)
    assert rows["BF16"].value == (1 + 44 / 128) * 2**-27
    assert rows["BF16"].reason == "rounded to the nearest of 8 significant bits: steps of 2^-34 here"
    assert rows["BF16"].step == 2**-34
    assert list(rows) == [fmt.name for fmt in formats.every()]


@pytest.mark.parametrize(
    ("number", "name", "reason"),
    [
        ("0.5", "fp16", "exact"),
        ("0", "fp16", "exact"),
        ("70000", "fp16", "beyond the largest value 65,504: becomes infinity"),
        (
            "500",
            "e4m3",
            (
                "beyond the largest value 448: is cut to it "
                "(PyTorch saturates since 2.12 (pull request 178817); before, it became NaN)"
            ),
        ),
        ("3e-8", "fp16", "below the smallest normal 2^-14 = 6.10e-5: steps of 2^-24"),
        ("0x1p-24", "fp16", "below the smallest normal 2^-14 = 6.10e-5: steps of 2^-24, and hits one exactly"),
        ("1e-400", "fp64", "at most 2^-1075, half of the smallest subnormal 2^-1074 = 4.94e-324: rounds to zero"),
        ("inf", "fp16", "has a pattern of its own"),
        ("nan", "e4m3", "has a pattern of its own"),
        ("1/3", "bf16", "rounded to the nearest of 8 significant bits: steps of 2^-9 here"),
    ],
)
def test_reasons(number: str, name: str, reason: str):
    """Each outcome says which border it crossed."""
    assert formats.explain_value(number, [name])[0].reason == reason


def test_nan_where_there_is_no_infinity():
    """Without saturation E4M3 has only NaN to say that a number is too large."""
    row = formats.explain_value(500, ["e4m3"], overflow="nonfinite")[0]
    assert math.isnan(row.value)
    assert row.reason.startswith("beyond the largest value 448: becomes NaN, as there is no infinity")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e-8", Fraction(1, 10**8)),
        ("1/3", Fraction(1, 3)),
        (" 65520 ", Fraction(65520)),
        ("-1.5E3", Fraction(-1500)),
        ("0x1.8p1", 3.0),
        ("1_000", Fraction(1000)),
        (2.5, 2.5),
    ],
)
def test_numbers_are_read_exactly(text, number):
    """A decimal text is that decimal, not the float beside it."""
    assert formats.read_number(text) == number


def test_special_numbers():
    """Infinities, NaN and a negative zero can be asked for."""
    assert formats.read_number("-inf") == -math.inf
    assert math.isnan(formats.read_number("NaN"))
    assert math.copysign(1, formats.read_number("-0.0")) == -1


@pytest.mark.parametrize(
    "text", ["", "abc", "1e", "1/0", "1e999999999", "1e-999999999", "0x1p99999", "0xzz", "1e2e3", "--1"]
)
def test_what_is_no_number(text: str):
    """Nonsense and numbers beyond any use are refused at once."""
    with pytest.raises(FormatError, match=r"is no number|far beyond"):
        formats.read_number(text)


@pytest.mark.parametrize(
    ("number", "name", "rounding", "reason"),
    [
        ("300", "int8", "nearest-even", "beyond the largest value 127: is cut to it"),
        ("-300", "int8", "nearest-even", "beyond the largest value -128: is cut to it"),
        ("1.5", "int8", "nearest-even", "rounded to the nearest multiple of 1"),
        ("2", "int8", "nearest-even", "exact: a multiple of 1"),
        ("1.5", "int8", "up", "rounded up to a multiple of 1"),
        ("nan", "fp4", "nearest-even", "there is no NaN"),
        ("0", "e8m0", "nearest-even", "there is no zero: becomes the smallest value 2^-127"),
        ("-8", "e8m0", "nearest-even", "there is no sign: the sign is dropped"),
        ("3", "e8m0", "nearest-even", "rounded to the nearest of 1 significant bit: steps of 2^2 here"),
        ("1/3", "bf16", "toward-zero", "rounded toward zero to one of 8 significant bits: steps of 2^-9 here"),
        ("1e-9", "fp16", "toward-zero", "below the smallest subnormal 2^-24 = 5.96e-8: rounds to zero"),
        ("7", "mxfp4", "nearest-even", "alone in its block: 6 · 2^0"),
        ("0.3", "nvfp4", "nearest-even", "alone in its block: 6 · 448 · 0.00011161"),
        ("inf", "mxfp8", "nearest-even", "its block's scale becomes NaN"),
    ],
)
def test_reasons_of_the_other_kinds_and_roundings(number, name, rounding, reason):
    """Integers, scales, blocks and directions say in their words what they did."""
    assert formats.explain_value(number, [name], rounding=rounding)[0].reason.startswith(reason)


def test_nothing_is_held_where_there_is_no_nan():
    """Without a pattern there is no value."""
    row = formats.explain_value("nan", ["fp6_e2m3"])[0]
    assert (row.value, row.kind, row.bits) == (None, "none", "")


def test_a_number_alone_in_its_block_shows_scale_and_element():
    """7 in MXFP4 is 6 · 2^0: the exponent 127 of the scale, and 0 11 1; the error is -1/7."""
    row = formats.explain_value("7", ["mxfp4"])[0]
    assert (row.value, row.bits) == (6, "01111111 · 0 11 1")
    assert row.relative_error == pytest.approx(-1 / 7)


def test_what_is_beyond_a_block_is_told():
    """1e400 is above 6·2^127, the largest of MXFP4, and is cut to it; a float does not hold 1e400."""
    (row,) = formats.explain_value("1e400", ["mxfp4"])
    assert (row.value, row.overflow, row.inexact) == (6 * 2.0**127, True, True)
    assert "is cut to 6 · 2^127" in row.reason
    (held,) = formats.explain_value("1e38", ["mxfp4"])
    assert not held.overflow


def test_an_error_beyond_every_float_is_unknown():
    """E8M0 makes 2^-127 of 1e-400, 10^361 times as much: no float holds that; it is inexact all the same."""
    (row,) = formats.explain_value("1e-400", ["e8m0"])
    assert (row.value, row.relative_error, row.inexact, row.underflow) == (2.0**-127, None, True, True)
