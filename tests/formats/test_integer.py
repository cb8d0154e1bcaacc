from torchledger import formats


def test_int8():
    """Eight bits of two's complement count from -128 to 127 in ones."""
    fmt = formats.find("int8")
    assert (fmt.bits, fmt.min, fmt.max, fmt.step, fmt.bytes_per_element) == (8, -128, 127, 1, 1)
    assert fmt.largest_exponent == 6  # 64 is the largest power of two


def test_the_elements_of_mxint8():
    """OCP MX 1.0, 5.3.4: an implicit scale of 2^-6, so ±1.984375, and the largest power of two is 1."""
    fmt = formats.block("mxint8").element
    assert (fmt.min, fmt.max, fmt.step) == (-127 / 64, 1.984375, 1 / 64)
    assert fmt.largest_exponent == 0
