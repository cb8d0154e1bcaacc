import json
import math
import re
from itertools import pairwise

import pytest

from torchledger import formats
from torchledger.view.format import value_screen
from torchledger.view.format_page import DATA_ID, Bits, Steps, bits_svg, format_page, ladder_svg


def test_a_box_for_every_bit():
    """Sixteen boxes of FP16, and the eight and four of a block's scale and element."""
    assert bits_svg([Bits("FP16", "0 01111 0000000001", "s eeeee mmmmmmmmmm")]).count("<rect") == 16
    assert bits_svg([Bits("MXFP4", "01111111 · 0 11 1", "eeeeeeee · s ee m")]).count("<rect") == 8 + 4


def test_fields_have_their_colours():
    """One box of the sign's colour, five of the exponent's, ten of the mantissa's."""
    drawn = bits_svg([Bits("FP16", "0 01111 0000000001", "s eeeee mmmmmmmmmm")])
    strokes = re.findall(r'stroke="(#\w+)"', drawn)
    assert sorted(strokes.count(color) for color in set(strokes)) == [1, 5, 10]


def test_a_ladder_is_to_scale():
    """Around 1 in FP4 the rungs 0, 0.5, 1, 1.5, 2 are evenly spaced, and 0.75 is halfway between two of them."""
    drawn = ladder_svg(Steps("FP4_E2M1", "0.75", 0.75, formats.ladder(1, "fp4", 2)))
    rungs = [float(x) for x in re.findall(r'<line x1="([\d.]+)" y1="40"', drawn)]
    gaps = [b - a for a, b in pairwise(rungs)]
    assert gaps == pytest.approx([gaps[0]] * 4, abs=0.2)
    asked = float(re.search(r'<path d="M([\d.]+)', drawn)[1])
    assert asked == pytest.approx((rungs[1] + rungs[2]) / 2, abs=0.2)


def test_a_ladder_of_the_largest_numbers_and_of_what_no_float_holds():
    """The span of FP64 is beyond every float, and an infinite number stands at the end of the line."""
    rungs = formats.ladder(10**400, "fp64", 2)
    drawn = ladder_svg(Steps("FP64", "1e400", math.inf, rungs))
    assert "nan" not in drawn
    assert drawn.count('y1="40"') == 2  # infinity has no place on the line


def test_a_long_ladder_is_written_only_where_there_is_room():
    """Of 41 rungs the ends and the nearest have their numbers, and the asked one."""
    drawn = ladder_svg(Steps("FP16", "1", 1.0, formats.ladder(1, "fp16", 20)))
    assert drawn.count('y1="40"') == 41
    assert drawn.count("<text") == 3 + 1


def test_the_page_stands_alone_and_holds_its_answer():
    """One document without scripts or links, texts escaped, the answer inside."""
    rows = formats.explain_value("1e-8", ["bf16"])
    page = format_page("<1e-8>", value_screen("1e-8", rows), {"value": rows[0].value}, bits=[Bits("BF16", "0", "s")])
    assert "<h1>&lt;1e-8&gt;</h1>" in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "<script src" not in page
    data = re.search(rf'id="{DATA_ID}">(.*?)</script>', page)[1]
    assert json.loads(data) == {"value": rows[0].value}


def test_nothing_to_draw_draws_nothing():
    """Tables alone make a page too; a ladder of one number has no line."""
    rungs = formats.ladder(1, "fp16", 0)
    page = format_page("a tensor", (), {}, ladders=[Steps("FP16", "1", 1.0, rungs)])
    assert "<svg" not in page
