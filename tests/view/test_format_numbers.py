import math
from fractions import Fraction

import pytest

from torchledger import formats
from torchledger.view.format_numbers import (
    blocks_screen,
    drawn_screen,
    equation,
    exact_text,
    float_or_text,
    ladder_screen,
    number_text,
    odds_screen,
    pattern_screen,
    sums_screen,
)
from torchledger.view.terminal import draw


@pytest.mark.parametrize("name", ["FP16", "BF16", "FP8_E4M3", "FP8_E5M2", "FP6_E3M2", "FP4_E2M1", "E8M0", "INT8"])
def test_the_arithmetic_of_a_pattern_gives_its_value(name):
    """What is written as the reason, evaluated, is the number."""
    fmt = formats.scalar(name)
    for bits in range(0, 2**fmt.bits, 1 if fmt.bits < 16 else 97):
        value = formats.decode(bits, fmt)
        if math.isfinite(value):
            written = equation(bits, fmt).replace("^", "**").replace("·", "*")
            assert eval(written) == value  # noqa: S307 - our own arithmetic


def test_patterns_set_aside():
    """Infinity and NaN are no arithmetic."""
    assert equation(0x7C00, formats.get("fp16")) == "set aside for infinity"
    assert equation(0x7F, formats.get("e4m3")) == "set aside for NaN"


def test_a_pattern_is_drawn_with_its_value():
    """0x7bff is FP16's largest number."""
    text = draw(pattern_screen(0x7BFF, formats.get("fp16")))
    assert "FP16 0 11110 1111111111 = 65504" in text
    assert "│0│11110│1111111111│" in text
    assert "0x7bff" in text


def test_fp64_has_digits_enough_to_tell_neighbours_apart():
    """Seventeen digits; nine elsewhere."""
    assert number_text(0.1 + 0.2, "FP64") == "0.30000000000000004"
    assert number_text(0.1 + 0.2) == "0.3"


def test_the_nearest_rung_is_marked():
    """Largest first, the nearest in its place."""
    table = ladder_screen("1", formats.get("fp4"), formats.ladder(1, "fp4", 1))[0]
    assert [row.cells[:3] for row in table.rows] == [
        ("+1", "1.5", "2^-1"),
        ("nearest", "1", "2^-1"),
        ("-1", "0.5", "2^-1"),
    ]
    assert [row.mark for row in table.rows] == ["", "good", ""]


def test_odds_are_shown_as_probabilities():
    """0.3 in FP4 is 0 in four of ten cases and 0.5 in six."""
    table = odds_screen("0.3", [formats.stochastic_odds(Fraction(3, 10), "fp4")])[0]
    assert table.rows[0].cells == ("FP4_E2M1", "0", "0.4", "0.5", "0.6")


def test_blocks_show_their_scale_once():
    """One row a number; the scale stands at the first of its block; NVFP4 has one for the tensor."""
    fmt = formats.block("mxfp4")
    table, *_ = blocks_screen(["1", "-7"], fmt, formats.encode_blocks([1, -7], fmt))
    assert [row.cells for row in table.rows] == [
        ("0", "1", "1", "01111111", "1", "0 01 0", "1"),
        ("0", "-7", "", "", "-6", "1 11 1", "-6"),
    ]
    nvfp4 = formats.block("nvfp4")
    assert "scale of the tensor" in draw(blocks_screen(["1"], nvfp4, formats.encode_blocks([1], nvfp4)))


def test_sums_say_how_they_were_made_and_where_they_stopped():
    """4,096 ones in BF16: 256 one by one, 93.75 % too little."""
    sums = [
        formats.accumulate_equal(1, 4096, "bf16"),
        formats.accumulate_equal(1, 4096, "bf16", accumulator="fp32"),
        formats.accumulate_equal(60000, 2, "fp16"),
    ]
    table = sums_screen(4096, "1", sums)[0]
    assert table.rows[0].cells == ("BF16", "one by one", "256", "-93.8 %", "1,600 %", "256")
    assert table.rows[1].cells[:4] == ("BF16", "one by one in FP32, rounded at the end", "4096", "0")
    assert table.rows[2].cells[2:5] == ("inf", "", "none")
    assert [row.mark for row in table.rows] == ["bad", "", "bad"]


def test_a_fraction_that_no_float_holds():
    """What is too large or too small is told by its power, with its sign and whatever its length."""
    assert float_or_text(Fraction(10**400)) == "about 10^400"
    assert float_or_text(Fraction(-(10**5000))) == "about -10^5000"
    assert float_or_text(Fraction(1, 10**400)) == "about 10^-400"
    assert float_or_text(Fraction(0)) == "0"
    assert float_or_text(Fraction(4096)) == "4,096"


def test_the_bits_of_a_number_are_drawn_with_their_arithmetic():
    """1.5 in FP4 is 2^0 · (1 + 1/2); 7 in MXFP4 is 6 under the scale 2^0; NaN has no pattern in FP4."""
    rows = [*formats.explain_value("1.5", ["fp4"]), *formats.explain_value("7", ["mxfp4"])]
    fp4, mxfp4 = drawn_screen([*rows, *formats.explain_value("nan", ["fp4"])])
    assert (fp4.title, fp4.lines) == ("FP4_E2M1", ("│0│01│1│", " s ee m", " 1.5 = +2^(1 - 1) · (1 + 1/2)"))
    assert mxfp4.lines == ("│01111111│ · │0│11│1│", " eeeeeeee  ·  s ee m", " 6 = 6 · 2^0")


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64"])
def test_what_is_called_exact_is(name):
    """Read as a fraction, the text is the number itself: all digits, or an integer times a power of two."""
    fmt = formats.get(name)
    for bits in (0, 1, 3, 12345, fmt.largest_pattern, fmt.largest_pattern // 2, fmt.largest_pattern * 2 // 3):
        value = formats.decode(bits, fmt)
        significand, _, power = exact_text(value).partition(" · 2^")
        assert Fraction(significand) * Fraction(2) ** int(power or 0) == Fraction(value)
