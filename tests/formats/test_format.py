import pytest
import torch

from torchledger import formats
from torchledger.formats import FormatError

DTYPES = {
    "FP64": torch.float64,
    "FP32": torch.float32,
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP8_E4M3": torch.float8_e4m3fn,
    "FP8_E5M2": torch.float8_e5m2,
}


@pytest.mark.parametrize("name", DTYPES)
def test_ranges_are_pytorchs(name: str):
    """Largest, smallest normal and smallest number, step at one and bytes are what torch.finfo says."""
    fmt, finfo = formats.get(name), torch.finfo(DTYPES[name])
    assert fmt.max == finfo.max
    assert fmt.smallest_normal == finfo.tiny
    assert fmt.epsilon == finfo.eps
    assert fmt.bytes_per_element == DTYPES[name].itemsize
    assert fmt.bits == finfo.bits
    integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[fmt.bytes_per_element]
    first_pattern = torch.tensor([1], dtype=integer).view(DTYPES[name])
    assert fmt.smallest_subnormal == first_pattern.to(torch.float64).item()


@pytest.mark.parametrize(
    ("name", "largest", "smallest_normal", "smallest_subnormal", "bias"),
    [
        ("FP64", (2 - 2**-52) * 2.0**1023, 2.0**-1022, 2.0**-1074, 1023),
        ("FP32", (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-149, 127),
        ("TF32", (2 - 2**-10) * 2.0**127, 2.0**-126, 2.0**-136, 127),
        ("FP16", 65504, 2.0**-14, 2.0**-24, 15),
        ("BF16", (2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-133, 127),
        ("FP8_E4M3", 448, 2.0**-6, 2.0**-9, 7),
        ("FP8_E5M2", 57344, 2.0**-14, 2.0**-16, 15),
        ("FP6_E3M2", 28, 2.0**-2, 2.0**-4, 3),
        ("FP6_E2M3", 7.5, 1, 2.0**-3, 1),
        ("FP4_E2M1", 6, 1, 0.5, 1),
        ("E8M0", 2.0**127, 2.0**-127, 2.0**-127, 127),
    ],
)
def test_ranges_are_the_published_ones(name, largest, smallest_normal, smallest_subnormal, bias):
    """The figures of IEEE 754, table 1 of arXiv:2209.05433 and the OCP MX specification follow from the bits."""
    fmt = formats.get(name)
    assert (fmt.max, fmt.smallest_normal, fmt.smallest_subnormal) == (largest, smallest_normal, smallest_subnormal)
    assert fmt.bias == bias


@pytest.mark.parametrize(
    ("name", "bits", "digits", "round_trip"),
    [("FP64", 64, 15, 17), ("FP32", 32, 6, 9), ("TF32", 19, 3, 5), ("FP16", 16, 3, 5), ("BF16", 16, 2, 4)],
)
def test_digits(name: str, bits: int, digits: int, round_trip: int):
    """C's FLT_DIG and FLT_DECIMAL_DIG (6 and 9, 15 and 17), and the same formula for the others."""
    fmt = formats.get(name)
    assert (fmt.bits, fmt.decimal_digits, fmt.round_trip_digits) == (bits, digits, round_trip)


@pytest.mark.parametrize("fmt", formats.known(), ids=lambda fmt: fmt.name)
def test_counting_stops_at_the_integer_that_is_named(fmt):
    """Adding one to the largest counting integer rounds back to it or is beyond the range; one below counts."""
    n = fmt.largest_counting_integer
    assert formats.encode(n, fmt).value == n
    assert formats.encode(n + 1, fmt).value == n or n + 1 > fmt.max
    assert formats.encode(n - 1, fmt).value == n - 1


def test_tf32_is_stored_as_fp32():
    """TF32 has 19 bits and takes 4 bytes; BF16 is the upper half of FP32."""
    assert formats.get("TF32").bytes_per_element == formats.get("FP32").bytes_per_element == 4
    assert formats.get("BF16").exponent_bits == formats.get("FP32").exponent_bits


def test_packed_elements_take_fractions_of_a_byte():
    """Six bits are 3/4 of a byte, four are half of one; whole bytes are integers."""
    sizes = {name: formats.find(name).bytes_per_element for name in ("e2m3", "e3m2", "fp4", "e8m0", "int8")}
    assert sizes == {"e2m3": 6 / 8, "e3m2": 6 / 8, "fp4": 4 / 8, "e8m0": 1, "int8": 1}
    assert isinstance(formats.get("fp16").bytes_per_element, int)


@pytest.mark.parametrize("fmt", formats.every(), ids=lambda fmt: fmt.name)
def test_a_format_has_its_source(fmt):
    """Every format says what it is for and where it is defined."""
    assert fmt.source
    assert fmt.use
    assert fmt.title


def test_the_error_is_a_value_error():
    """Users catch one family."""
    assert issubclass(FormatError, ValueError)
