import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from torchledger import formats
from torchledger.formats import FormatError

SMALL = {
    "FP16": (torch.float16, torch.int16, 16),
    "BF16": (torch.bfloat16, torch.int16, 16),
    "FP8_E4M3": (torch.float8_e4m3fn, torch.uint8, 8),
    "FP8_E5M2": (torch.float8_e5m2, torch.uint8, 8),
}
INTS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}


def patterns(values: torch.Tensor, bits: int) -> list[int]:
    """PyTorch's bits as unsigned integers."""
    return [pattern % 2**bits for pattern in values.view(INTS[bits]).tolist()]


def drawn_floats(count: int) -> torch.Tensor:
    """FP32 numbers of every exponent, and those around every border of the small formats."""
    generator = torch.Generator().manual_seed(1)
    bits = torch.randint(-(2**31), 2**31 - 1, (count,), generator=generator, dtype=torch.int64).to(torch.int32)
    anywhere = bits.view(torch.float32)
    exponents = torch.randint(-30, 20, (count,), generator=generator)
    near = (1 + torch.rand(count, generator=generator)) * torch.exp2(exponents.float())
    # halfway points: one bit below the last one of each mantissa
    halves = torch.cat(
        [
            (1 + (2 * torch.randint(0, 2**m, (count // 8,), generator=generator) + 1) * 2.0 ** -(m + 1))
            * torch.exp2(torch.randint(-26, 17, (count // 8,), generator=generator).float())
            for m in (2, 3, 7, 10)
        ]
    )
    values = torch.cat([anywhere, near, -near, halves, -halves])
    return values[~values.isnan()]


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_means_what_pytorch_says(name: str):
    """All 256 or 65,536 patterns decode to PyTorch's value, sign of zero included, and encode to themselves again."""
    dtype, integer, bits = SMALL[name]
    all_patterns = torch.arange(2**bits, dtype=torch.int64).to(integer)
    values = all_patterns.view(dtype).to(torch.float64).tolist()
    for pattern, value in enumerate(values):
        decoded = formats.decode(pattern, name)
        if math.isnan(value):
            assert math.isnan(decoded)
            assert formats.kind_of(pattern, name) == "nan"
            continue
        assert decoded == value
        assert math.copysign(1, decoded) == math.copysign(1, value)
        encoded = formats.encode(decoded, name, overflow="nonfinite")
        assert encoded.bits == pattern
        assert not encoded.inexact


@pytest.mark.parametrize("name", SMALL)
def test_rounding_is_pytorchs_bit_for_bit(name: str):
    """Thousands of FP32 numbers, halfway points among them, are cast to the same bits."""
    dtype, _, bits = SMALL[name]
    values = drawn_floats(2000)
    expected = patterns(values.to(dtype), bits)
    assert [formats.encode(x, name).bits for x in values.tolist()] == expected


def test_fp32_rounding_is_pytorchs_bit_for_bit():
    """FP64 numbers are cast to the same FP32 bits, subnormal and overflowing ones among them."""
    generator = torch.Generator().manual_seed(2)
    mantissas = 1 + torch.rand(4000, generator=generator, dtype=torch.float64)
    values = mantissas * torch.exp2(torch.randint(-155, 130, (4000,), generator=generator).double())
    expected = patterns(values.to(torch.float32), 32)
    assert [formats.encode(x, "fp32").bits for x in values.tolist()] == expected


def test_tf32_is_fp32_rounded_at_its_thirteenth_bit():
    """A TF32 pattern is the FP32 pattern plus half of 2^13 (less one if the bit above is even), cut to 19 bits."""
    values = drawn_floats(2000)
    for x, pattern in zip(values.tolist(), patterns(values, 32), strict=True):
        if math.isinf(x):
            continue
        rounded = (pattern + 0xFFF + (pattern >> 13 & 1)) >> 13
        assert formats.encode(x, "tf32").bits == rounded


@given(st.floats(allow_nan=False))
def test_fp64_is_pythons_float(x: float):
    """Every Python float is an FP64 number, exactly."""
    encoded = formats.encode(x, "fp64")
    assert encoded.value == x
    assert not encoded.inexact


@given(st.fractions(), st.sampled_from([fmt.name for fmt in formats.known()]))
def test_nothing_is_nearer(x: Fraction, name: str):
    """The chosen number is nearest: neither neighbouring pattern is closer, and of two equally near it is the even."""
    encoded = formats.encode(x, name)
    if encoded.overflow:
        assert abs(x) > formats.get(name).max
        return
    error = abs(Fraction(encoded.value) - x)
    magnitude = encoded.bits & ~(1 << formats.get(name).bits - 1)
    for neighbour in (magnitude - 1, magnitude + 1):
        if 0 <= neighbour <= formats.get(name).largest_pattern:
            distance = abs(Fraction(formats.decode(neighbour, name)) - abs(x))
            assert error < distance or (error == distance and encoded.bits % 2 == 0)


@given(st.fractions(min_value=Fraction(1, 10**6), max_value=400), st.sampled_from(["fp16", "bf16", "e4m3", "e5m2"]))
def test_errors_are_at_most_half_a_step(x: Fraction, name: str):
    """Rounding to nearest errs by half a step at most, and the relative error is exact."""
    encoded = formats.encode(x, name)
    assert abs(Fraction(encoded.value) - x) <= Fraction(encoded.step) / 2
    assert encoded.relative_error == float((Fraction(encoded.value) - x) / x)


@given(st.integers(0, 2**1100), st.sampled_from([fmt.name for fmt in formats.known()]))
def test_integers_beyond_floats_are_numbers_too(n: int, name: str):
    """An integer that no float holds overflows like any other number."""
    encoded = formats.encode(n, name, overflow="saturate")
    largest = Fraction(formats.get(name).max)
    assert encoded.value <= largest
    assert abs(Fraction(encoded.value) - min(n, largest)) <= Fraction(encoded.step) / 2


@pytest.mark.parametrize(
    ("name", "value", "overflow", "made", "is_overflow"),
    [
        ("e4m3", 464, "cast", 448, False),  # halfway to 480, whose pattern is NaN: ties to the even 448
        ("e4m3", 465, "cast", 448, True),
        ("e4m3", 465, "saturate", 448, True),
        ("e4m3", 465, "nonfinite", math.nan, True),
        ("e4m3", -465, "cast", -448, True),
        ("e4m3", math.inf, "cast", 448, True),
        ("e4m3", math.inf, "nonfinite", math.nan, True),
        ("e4m3", -math.inf, "saturate", -448, True),
        ("e5m2", 61439, "cast", 57344, False),
        ("e5m2", 61440, "cast", math.inf, True),
        ("e5m2", 61440, "saturate", 57344, True),
        ("e5m2", -math.inf, "saturate", -57344, True),
        ("e5m2", -math.inf, "nonfinite", -math.inf, False),
        ("fp16", 65519.99, "cast", 65504, False),
        ("fp16", 65520, "cast", math.inf, True),
        ("fp16", -65520, "saturate", -65504, True),
        ("bf16", 3.4e38, "cast", math.inf, True),
        ("fp32", 2.0**127, "cast", 2.0**127, False),
        ("fp32", 2.0**128, "cast", math.inf, True),
        ("fp16", math.nan, "saturate", math.nan, False),
    ],
)
def test_the_two_conventions_beyond_the_largest_number(name, value, overflow, made, is_overflow):
    """Saturating cuts, infinities too; otherwise infinity, or NaN for E4M3; the cast is PyTorch's."""
    encoded = formats.encode(value, name, overflow)
    assert encoded.value == pytest.approx(made, rel=0, abs=0, nan_ok=True)
    assert encoded.overflow is is_overflow


def test_fp32_patterns_mean_what_pytorch_says():
    """Thousands of drawn FP32 patterns decode to PyTorch's values."""
    values = drawn_floats(1000)
    assert [formats.decode(pattern, "fp32") for pattern in patterns(values, 32)] == values.tolist()


@pytest.mark.parametrize("name", ["FP8_E4M3", "FP8_E5M2", "FP16", "BF16"])
def test_the_cast_is_the_one_of_the_pytorch_at_hand(name: str):
    """What is too large, infinities included, becomes what this PyTorch makes of it."""
    dtype, _, bits = SMALL[name]
    values = torch.tensor([448.5, 464, 465, 1e5, 61440, 65520, 3.4e38, math.inf, -math.inf, -1e38])
    assert [formats.encode(x, name).bits for x in values.tolist()] == patterns(values.to(dtype), bits)


def test_flags():
    """Inexact, underflow and overflow are IEEE 754's: tiny and inexact, or beyond the largest number."""
    tiny, exact_tiny, big = formats.encode(1e-8, "fp16"), formats.encode(2**-24, "fp16"), formats.encode(1e5, "fp16")
    assert (tiny.value, tiny.kind, tiny.inexact, tiny.underflow, tiny.overflow) == (0, "zero", True, True, False)
    assert (exact_tiny.kind, exact_tiny.inexact, exact_tiny.underflow) == ("subnormal", False, False)
    assert (big.value, big.kind, big.overflow, big.underflow) == (math.inf, "infinity", True, False)
    assert formats.encode(math.inf, "fp16").overflow is False
    assert formats.encode(math.nan, "fp16").kind == "nan"
    assert formats.encode(0, "fp16") == formats.encode(0.0, "fp16")
    assert formats.encode(-0.0, "fp16").bits == 1 << 15
    assert formats.encode(-1e-9, "fp16").bits == 1 << 15, "a negative number that vanishes keeps its sign"


def test_pytorch_rounds_fp64_twice_on_the_way_to_fp16():
    """1 + 2^-11 + 2^-30 is nearest to 1 + 2^-10; PyTorch passes through FP32, loses the 2^-30, and ties to 1."""
    x = 1 + 2**-11 + 2**-30
    assert formats.encode(x, "fp16").value == 1 + 2**-10
    assert torch.tensor(x, dtype=torch.float64).to(torch.float16).item() == 1
    assert formats.encode(formats.encode(x, "fp32").value, "fp16").value == 1


@pytest.mark.parametrize("function", [formats.decode, formats.kind_of, formats.bit_pattern])
@pytest.mark.parametrize("bits", [-1, 256])
def test_patterns_that_are_none(function, bits: int):
    """A pattern of more bits than the format has is refused."""
    with pytest.raises(FormatError, match="no pattern of FP8_E4M3, which has 8 bits"):
        function(bits, "e4m3")


def test_patterns_in_writing():
    """Sign, exponent and mantissa stand apart."""
    assert formats.bit_pattern(formats.encode(-1.5, "e4m3").bits, "e4m3") == "1 0111 100"


@pytest.mark.parametrize(
    ("value", "name", "rounding", "made"),
    [
        (70000, "fp16", "nearest-even", math.inf),
        (70000, "fp16", "nearest-away", math.inf),
        (70000, "fp16", "toward-zero", 65504),
        (70000, "fp16", "down", 65504),
        (70000, "fp16", "up", math.inf),
        (-70000, "fp16", "up", -65504),
        (-70000, "fp16", "down", -math.inf),
        (1e-9, "fp16", "up", 2.0**-24),
        (-1e-9, "fp16", "up", -0.0),
        (-1e-9, "fp16", "down", -(2.0**-24)),
        (2.5, "int8", "nearest-even", 2),
        (2.5, "int8", "nearest-away", 3),
        (-2.5, "int8", "nearest-away", -3),
        (-2.5, "int8", "toward-zero", -2),
        (-2.5, "int8", "down", -3),
        (1.25, "fp4", "nearest-even", 1),
        (1.25, "fp4", "nearest-away", 1.5),
        (-1.25, "fp4", "nearest-away", -1.5),
    ],
)
def test_rounding_modes(value, name, rounding, made):
    """IEEE 754-2019, 4.3: ties, directions, and which of them reach infinity (7.4)."""
    assert formats.encode(value, name, rounding=rounding).value == made


def test_directed_overflow_is_still_flagged():
    """Cut by a direction or not, 70,000 is beyond FP16's largest number; 65,519 rounded toward zero is not."""
    assert formats.encode(70000, "fp16", rounding="toward-zero").overflow
    assert not formats.encode(65519, "fp16", rounding="toward-zero").overflow


@given(
    st.fractions(min_value=-400, max_value=400),
    st.sampled_from([fmt.name for fmt in formats.known()]),
    st.fractions(min_value=0, max_value=Fraction(999, 1000)),
)
def test_stochastic_rounding_goes_away_from_zero_with_the_probability_of_its_odds(x, name, random):
    """Below the probability the random number takes the further neighbour, from it on the nearer."""
    near, far, share = formats.stochastic_odds(x, name)
    made = formats.encode(x, name, rounding="stochastic", random=random)
    assert made.value == (far.value if random < share else near.value)


@given(st.fractions(min_value=-6, max_value=6), st.sampled_from([fmt.name for fmt in formats.known()]))
def test_stochastic_rounding_has_no_bias(x, name):
    """The expected value (1 - p)·near + p·far is the number."""
    near, far, share = formats.stochastic_odds(x, name)
    assert (1 - share) * Fraction(near.value) + share * Fraction(far.value) == x


def test_odds_beyond_the_largest_number():
    """6 of the 32 from FP16's largest number 65,504 to the next one that it has not: infinity in 6 of 32 cases."""
    near, far, share = formats.stochastic_odds(65510, "fp16")
    assert (near.value, far.value, share) == (65504, math.inf, Fraction(6, 32))
    assert formats.stochastic_odds(70000, "fp16")[2] == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounding": "stochastic"}, "needs a random number"),
        ({"rounding": "stochastic", "random": 1}, "at least 0 and below 1, not 1"),
        ({"rounding": "stochastic", "random": -0.1}, "at least 0"),
        ({"rounding": "stochastic", "random": math.nan}, "at least 0"),
        ({"rounding": "up", "random": 0.5}, "for stochastic rounding, not for up"),
        ({"rounding": "sideways"}, "no rounding is called 'sideways'; known: nearest-even"),
    ],
)
def test_wrong_rounding(options, message: str):
    """Modes that do not exist and random numbers that are missing, outside [0, 1) or of no use are refused."""
    with pytest.raises(FormatError, match=message):
        formats.encode(1.1, "fp16", **options)


@pytest.mark.parametrize("name", ["fp4", "e2m3", "e3m2", "int8"])
def test_formats_without_nan_refuse_it(name: str):
    """No pattern stands for NaN; infinity is cut to the largest number under every convention."""
    with pytest.raises(FormatError, match="has no NaN"):
        formats.encode(math.nan, name)
    fmt = formats.find(name)
    for overflow in ("cast", "saturate", "nonfinite"):
        made = formats.encode(math.inf, name, overflow)
        assert (made.value, made.overflow) == (fmt.max, True)


def test_integers_clamp():
    """INT8 goes from -128 to 127; the elements of MXINT8 leave -2 unused, so they go from -127/64 to 127/64."""
    assert [formats.encode(x, "int8").value for x in (-1000, -128, 127.4, 1000, -math.inf)] == [
        -128,
        -128,
        127,
        127,
        -128,
    ]
    assert formats.encode(-128, "int8").overflow is False
    assert [formats.encode(x, "mxint8_element").value for x in (-2, 5, -math.inf)] == [-127 / 64, 127 / 64, -127 / 64]
    assert formats.encode(-1, "int8").bits == 0xFF


@pytest.mark.parametrize(
    ("value", "overflow", "made"),
    [
        (-4, "cast", 4),
        (0, "cast", 2.0**-127),
        (-4, "nonfinite", math.nan),
        (0, "saturate", math.nan),
        (2.0**200, "cast", math.nan),
        (2.0**200, "saturate", 2.0**127),
        (math.inf, "saturate", 2.0**127),
        (-math.inf, "saturate", math.nan),
        (3, "cast", 4),  # halfway between 2 and 4: goes to where the significand 2 is even, as in wider formats
        (2.0**-140, "cast", 2.0**-127),
    ],
)
def test_scales(value, overflow: str, made):
    """E8M0 has no sign and no zero: PyTorch's cast drops and replaces them, the other conventions make them NaN."""
    assert formats.encode(value, "e8m0", overflow).value == pytest.approx(made, rel=0, abs=0, nan_ok=True)


def test_underflow_of_scales():
    """What is below 2^-127 has no power of two; what only rounds down to 2^-127 has."""
    assert formats.encode(2.0**-140, "e8m0").underflow
    assert not formats.encode(2.0**-127, "e8m0").underflow
    assert not formats.encode(1.25 * 2.0**-127, "e8m0").underflow
