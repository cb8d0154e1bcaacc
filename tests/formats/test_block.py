from fractions import Fraction

import pytest

from torchledger import formats


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("mxfp8", 8 + Fraction(8, 32)),
        ("mxfp8_e5m2", 8 + Fraction(8, 32)),
        ("mxfp6_e2m3", 6 + Fraction(8, 32)),
        ("mxfp4", 4 + Fraction(8, 32)),
        ("mxint8", 8 + Fraction(8, 32)),
        ("nvfp4", 4 + Fraction(8, 16)),
    ],
)
def test_an_element_pays_its_share_of_the_scale(name: str, bits: Fraction):
    """Bits of an element and a scale of eight bits for the block."""
    fmt = formats.block(name)
    assert fmt.bits_per_element == bits
    assert fmt.bytes_per_element == float(bits / 8)


def test_ranges_are_those_of_element_and_scale_together():
    """6 · 2^127 and 0.5 · 2^-127 in MXFP4; 6 · 448 · FP32's largest in NVFP4."""
    assert (formats.block("mxfp4").max, formats.block("mxfp4").smallest) == (6 * 2.0**127, 0.5 * 2.0**-127)
    assert formats.block("nvfp4").max == 6 * 448 * formats.get("fp32").max
    assert formats.block("mxint8").smallest == 2.0**-6 * 2.0**-127
