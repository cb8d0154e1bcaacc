import pytest

from torchledger import formats
from torchledger.formats import FormatError


@pytest.mark.parametrize(
    ("text", "name", "bits"),
    [
        ("0x7bff", "fp16", 0x7BFF),
        ("0b0101", "fp4", 0b0101),
        ("0 10 1", "fp4", 0b0101),
        ("0101", "fp4", 0b0101),
        ("1 1111111", "int8", 0xFF),
        ("0 01111 00_0000_0001", "fp16", 0x3C01),
    ],
)
def test_patterns_are_read_as_people_write_them(text: str, name: str, bits: int):
    """Hexadecimal, binary, or bits with the fields apart."""
    assert formats.read_pattern(text, name) == bits


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0x1f", "no pattern of FP4_E2M1, which has 4 bits"),
        ("12", "no bit pattern"),
        ("", "no bit pattern"),
        ("-1", "no"),
    ],
)
def test_what_is_no_pattern(text: str, message: str):
    """Too many bits, other digits, nothing."""
    with pytest.raises(FormatError, match=message):
        formats.read_pattern(text, "fp4")


@pytest.mark.parametrize("name", ["FP16", "FP8_E4M3", "FP6_E3M2", "FP4_E2M1", "E8M0", "INT8", "MXINT8_ELEMENT"])
def test_patterns_in_writing_are_read_back(name: str):
    """Every pattern, written with its fields apart, reads as itself."""
    for bits in range(0, 2 ** formats.scalar(name).bits, 7):
        assert formats.read_pattern(formats.bit_pattern(bits, name), name) == bits


def test_the_values_of_fp4():
    """All sixteen, as the OCP specification lists them."""
    positive = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
    assert [formats.decode(bits, "fp4") for bits in range(16)] == positive + [-x for x in positive]


def test_twos_complement():
    """The first bit of INT8 counts -128; MXINT8's elements are the same in 64ths."""
    assert [formats.decode(bits, "int8") for bits in (0, 1, 0x7F, 0x80, 0xFF)] == [0, 1, 127, -128, -1]
    assert formats.decode(0x80, "mxint8_element") == -128 / 64
    assert formats.decode(0x01, "mxint8_element") == 1 / 64
    assert formats.kind_of(0, "int8") == "zero"
    assert formats.kind_of(0x80, "int8") == "normal"


def test_blocks_have_no_patterns_of_single_numbers():
    """A block format is refused, its elements named."""
    with pytest.raises(FormatError, match="its elements are FP4_E2M1"):
        formats.decode(0, "nvfp4")
