from torchledger import formats
from torchledger.view.format import format_screen, formats_table, tensor_screen, value_screen
from torchledger.view.terminal import draw


def test_the_drawn_bits_are_the_formats():
    """As many letters as the format has exponent and mantissa bits."""
    for fmt in formats.known():
        text = draw(format_screen(formats.describe(fmt)))
        assert f"│s│{'e' * fmt.exponent_bits}│{'m' * fmt.mantissa_bits}│" in text


def test_a_number_that_is_lost_is_marked():
    """What rounds to zero or overflows stands out; what is held does not."""
    screen = value_screen("1e-8", formats.explain_value("1e-8", ["fp16", "bf16"]))
    assert [row.mark for row in screen[0].rows] == ["bad", ""]


def test_a_true_zero_is_not_lost():
    """Zero is zero in every format."""
    assert {row.mark for row in value_screen("0", formats.explain_value("0"))[0].rows} == {""}


def test_all_formats_in_one_table():
    """One row each, in the order of the formats room."""
    rows = [formats.describe(fmt) for fmt in formats.known()]
    assert [row.cells[0] for row in formats_table(rows).rows] == [fmt.name for fmt in formats.known()]


def test_a_tensors_elements_are_counted():
    """2 × 3 elements of 2 bytes; a scalar is one element."""
    fmt = formats.get("bf16")
    assert "= 6 elements" in draw(tensor_screen([2, 3], {fmt.name: 12}, [fmt]))
    assert "a tensor of scalar = 1 elements" in draw(tensor_screen([], {fmt.name: 2}, [fmt]))
