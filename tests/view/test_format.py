from torchledger import formats
from torchledger.view.format import (
    drawn_bits,
    format_screen,
    formats_screen,
    formats_table,
    tensor_screen,
    value_screen,
)
from torchledger.view.terminal import draw


def test_the_drawn_bits_are_the_formats():
    """As many letters as the format has exponent and mantissa bits."""
    for fmt in formats.known():
        text = draw(format_screen(formats.describe(fmt)))
        assert f"│s│{'e' * fmt.exponent_bits}│{'m' * fmt.mantissa_bits}│" in text


def test_scales_integers_and_blocks_are_drawn_too():
    """A scale has only exponent bits, an integer none, a block a scale and its elements."""
    assert "│eeeeeeee│" in draw(format_screen(formats.describe("e8m0")))
    assert "│s│iiiiiii│" in draw(format_screen(formats.describe("int8")))
    assert "scale │eeeeeeee│ × 32 of │s│ee│m│" in draw(format_screen(formats.describe("mxfp4")))
    nvfp4 = draw(format_screen(formats.describe("nvfp4")))
    assert "tensor: FP32   scale │s│eeee│mmm│ × 16 of │s│ee│m│" in nvfp4
    assert "4 + 8/16 = 4.5 bits = 0.5625 bytes an element" in nvfp4


def test_ranges_are_shown():
    """E4M3 [-448, 448], E5M2 [-57344, 57344]."""
    assert "[-448, 448]" in draw(format_screen(formats.describe("e4m3")))
    assert "[-57344, 57344]" in draw(format_screen(formats.describe("e5m2")))


def test_what_a_format_has_not_is_said():
    """FP4 has neither infinity nor NaN; a cast of what is too large to E8M0 is NaN and not infinity."""
    assert "infinity: no; NaN: no" in draw(format_screen(formats.describe("fp4")))
    assert "a cast becomes NaN" in draw(format_screen(formats.describe("e8m0")))


def test_letters_stand_below_their_bits():
    """Boxes and letters have the same columns, in blocks too."""
    boxes, letters = drawn_bits("01111111 · 0 11 1", "eeeeeeee · s ee m")
    assert boxes == "│01111111│ · │0│11│1│"
    assert letters == " eeeeeeee  ·  s ee m"


def test_a_number_that_is_lost_is_marked():
    """What rounds to zero, overflows or has no pattern stands out; what is held does not."""
    screen = value_screen("1e-8", formats.explain_value("1e-8", ["fp16", "bf16"]))
    assert [row.mark for row in screen[0].rows] == ["bad", ""]
    assert [row.mark for row in value_screen("nan", formats.explain_value("nan", ["fp4"]))[0].rows] == ["bad"]


def test_a_true_zero_is_not_lost():
    """Zero is zero in every format."""
    assert {row.mark for row in value_screen("0", formats.explain_value("0"))[0].rows} == {""}


def test_all_formats_in_one_table():
    """One row each, in the order of the formats room."""
    rows = [formats.describe(fmt) for fmt in formats.known()]
    assert [row.cells[0] for row in formats_table(rows).rows] == [fmt.name for fmt in formats.known()]


def test_every_format_is_in_one_of_the_three_tables():
    """Floating formats, integers, blocks: none is left out, and an empty table is not shown."""
    tables = formats_screen([formats.describe(fmt) for fmt in formats.every()])
    assert [row.cells[0] for table in tables for row in table.rows] == [fmt.name for fmt in formats.every()]
    assert len(formats_screen([formats.describe("fp16")])) == 1
    assert len(formats_screen([formats.describe("int8")])) == 1


def test_a_tensors_elements_are_counted():
    """2 × 3 elements of 2 bytes; one dimension is its own count; a shape of none is a scalar."""
    fmt = formats.get("bf16")
    assert "= 6 elements" in draw(tensor_screen([2, 3], {fmt.name: 12}, [fmt]))
    assert draw(tensor_screen([3], {fmt.name: 6}, [fmt])).startswith("a tensor of 3 elements\n")
    assert draw(tensor_screen([1], {fmt.name: 2}, [fmt])).startswith("a tensor of 1 element\n")
    assert draw(tensor_screen([], {fmt.name: 2}, [fmt])).startswith("a scalar\n")


def test_bytes_are_shown_in_mib_too():
    """49,152 · 12,288 · 4 bytes are 2,304 MiB = 2.25 GiB."""
    fmt = formats.get("fp32")
    row = tensor_screen([49152, 12288], {fmt.name: 49152 * 12288 * 4}, [fmt])[0].rows[0]
    assert row.cells == ("FP32", "4", "2,415,919,104", "2,304", "2.25 GiB")
