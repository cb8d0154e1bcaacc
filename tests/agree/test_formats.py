"""Number formats bit for bit: our integers against numpy, PyTorch and ml_dtypes, every small pattern and many drawn."""

import math
import struct

import ml_dtypes
import numpy as np
import pytest
import torch

from torchledger import formats

#: Formats whose every pattern can be listed, with the type of another library that has them.
SMALL = {
    "FP8_E4M3": ml_dtypes.float8_e4m3fn,
    "FP8_E5M2": ml_dtypes.float8_e5m2,
    "FP6_E3M2": ml_dtypes.float6_e3m2fn,
    "FP6_E2M3": ml_dtypes.float6_e2m3fn,
    "FP4_E2M1": ml_dtypes.float4_e2m1fn,
    "E8M0": ml_dtypes.float8_e8m0fnu,
    "INT8": np.int8,
}
TORCH = {
    "FP16": torch.float16,
    "BF16": torch.bfloat16,
    "FP8_E4M3": torch.float8_e4m3fn,
    "FP8_E5M2": torch.float8_e5m2,
    "E8M0": torch.float8_e8m0fnu,
}
MANY = [pytest.param(100_000, id="100k"), pytest.param(1_000_000, id="million", marks=pytest.mark.proof)]


def drawn(count: int, seed: int) -> np.ndarray:
    """FP32 numbers: a half anywhere, a half within the range of the narrow formats; a quarter of these are ties."""
    generator = np.random.default_rng(seed)
    anywhere = generator.integers(0, 2**32, count // 2, dtype=np.uint32).view(np.float32)
    near = generator.uniform(1, 2, count - count // 2) * 2.0 ** generator.integers(-28, 18, count - count // 2)
    ties = len(near) // 2
    bits = generator.integers(1, 12, ties)  # that many bits behind the point, the last of them set
    near[:ties] = (1 + (2 * np.floor(generator.uniform(0, 1, ties) * 2.0 ** (bits - 1)) + 1) * 2.0**-bits) * 2.0 ** (
        generator.integers(-28, 18, ties)
    )
    near *= generator.choice([-1, 1], len(near))
    values = np.concatenate([anywhere, near.astype(np.float32)])
    return values[np.isfinite(values)]


def ours(values: np.ndarray, name: str, overflow: str = "cast") -> np.ndarray:
    fmt = formats.scalar(name)
    return np.array([formats.encode(x, fmt, overflow).bits for x in values.tolist()], dtype=np.uint64)


def unsigned(values: np.ndarray, bits: int) -> np.ndarray:
    """The patterns of numbers of another library, the bits above the format's cut off."""
    return values.view({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[values.itemsize]).astype(np.uint64) & (
        np.uint64(2**bits - 1)
    )


def is_subnormal_scale(values: np.ndarray) -> np.ndarray:
    """FP32 numbers between 2^-127 and 2^-126, where the libraries do not round to nearest (see the test below)."""
    return (np.abs(values) > 2.0**-127) & (np.abs(values) < 2.0**-126)


def by_torch(values: np.ndarray, name: str, bits: int) -> np.ndarray:
    made = torch.from_numpy(values).to(TORCH[name])
    return unsigned(made.view({1: torch.uint8, 2: torch.int16}[made.itemsize]).numpy(), bits)


@pytest.mark.parametrize("name", SMALL)
def test_every_pattern_of_eight_bits_and_fewer_means_what_ml_dtypes_says(name):
    """All patterns decode to ml_dtypes' value, sign of zero included, and encode to themselves again."""
    fmt = formats.scalar(name)
    patterns = np.arange(2**fmt.bits, dtype=np.uint8)
    values = patterns.view(SMALL[name]).astype(np.float64).tolist()
    for pattern, value in enumerate(values):
        decoded = formats.decode(pattern, fmt)
        if math.isnan(value):
            assert math.isnan(decoded)
            assert formats.kind_of(pattern, fmt) == "nan"
            continue
        assert (decoded, math.copysign(1, decoded)) == (value, math.copysign(1, value))
        assert formats.encode(decoded, fmt, "nonfinite").bits == pattern


def test_every_pattern_of_scales_means_what_pytorch_says():
    """All 256 patterns of E8M0 are PyTorch's powers of two, and NaN."""
    values = torch.arange(256, dtype=torch.uint8).view(torch.float8_e8m0fnu).to(torch.float64)
    made = torch.tensor([formats.decode(pattern, "e8m0") for pattern in range(256)], dtype=torch.float64)
    assert torch.equal(made, values) or torch.equal(made.nan_to_num(-1), values.nan_to_num(-1))


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize("name", ["FP16", "BF16", "FP8_E4M3", "FP8_E5M2", "E8M0"])
def test_drawn_numbers_are_cast_as_pytorch_casts_them(name, count):
    """FP32 numbers, ties among them, become the same bits."""
    values = drawn(count, seed=1)
    if name == "E8M0":
        values = values[~is_subnormal_scale(values)]
    assert np.array_equal(ours(values, name), by_torch(values, name, formats.get(name).bits))


@pytest.mark.parametrize("count", MANY)
@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, SMALL[name]) for name in SMALL if name != "INT8"), ("FP16", np.float16), ("BF16", ml_dtypes.bfloat16)],
)
def test_drawn_numbers_are_cast_as_ml_dtypes_casts_them(name, kind, count):
    """FP32 numbers become the same bits; ml_dtypes does not saturate E4M3, and makes zero and negative scales NaN."""
    values = drawn(count, seed=2)
    if name == "E8M0":
        values = values[~is_subnormal_scale(values)]
    with np.errstate(over="ignore"):
        theirs = unsigned(values.astype(kind), formats.get(name).bits)
    made = ours(values, name, "nonfinite")
    if name in SMALL:  # a NaN may have either sign
        lost = np.array([formats.kind_of(bits, name) == "nan" for bits in range(2 ** formats.get(name).bits)])
        made, theirs = np.where(lost[made], 999, made), np.where(lost[theirs], 999, theirs)
    assert np.array_equal(made, theirs)


def test_libraries_round_the_smallest_scales_up():
    """PyTorch and ml_dtypes round FP32's exponent field, which stands still below 2^-126; here the nearest is taken.

    1.05 · 2^-127 lies between 2^-127 and 2^-126 and is nearer to the first, and both make the second of it.
    """
    values = np.array([1.05, 1.4, 1.6, 1.95], dtype=np.float32) * np.float32(2.0**-127)
    assert by_torch(values, "E8M0", 8).tolist() == [1, 1, 1, 1]
    assert unsigned(values.astype(ml_dtypes.float8_e8m0fnu), 8).tolist() == [1, 1, 1, 1]
    assert ours(values, "E8M0").tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("count", MANY)
def test_drawn_doubles_are_cast_as_numpy_and_pytorch_cast_them(count):
    """FP64 numbers become the same FP32 and FP16 bits in one rounding; FP64 and integers are Python's own."""
    generator = np.random.default_rng(3)
    values = generator.uniform(1, 2, count) * 2.0 ** generator.integers(-155, 130, count)
    with np.errstate(over="ignore", under="ignore"):
        assert np.array_equal(ours(values, "FP32"), unsigned(values.astype(np.float32), 32))
    theirs = torch.from_numpy(values).to(torch.float32).view(torch.int32).numpy()
    assert np.array_equal(ours(values[:20_000], "FP32"), unsigned(theirs[:20_000], 32))
    narrow = generator.uniform(1, 2, count // 4) * 2.0 ** generator.integers(-28, 17, count // 4)
    with np.errstate(over="ignore", under="ignore"):
        assert np.array_equal(ours(narrow, "FP16"), unsigned(narrow.astype(np.float16), 16))
    some = values[:5_000].tolist()
    assert [formats.encode(x, "fp64").bits for x in some] == [
        struct.unpack("<Q", struct.pack("<d", x))[0] for x in some
    ]


@pytest.mark.parametrize("count", MANY)
def test_drawn_numbers_in_tf32_are_fp32_rounded_at_its_thirteenth_bit(count):
    """A TF32 pattern is the FP32 pattern plus half of 2^13 (less one if the bit above is even), cut to 19 bits."""
    values = drawn(count, seed=4)
    bits = values.view(np.uint32).astype(np.uint64)
    expected = (bits + np.uint64(0xFFF) + (bits >> np.uint64(13) & np.uint64(1))) >> np.uint64(13)
    assert np.array_equal(ours(values, "TF32"), expected)


@pytest.mark.parametrize("name", ["FP16", "BF16", "FP8_E4M3", "FP8_E5M2", "FP6_E3M2", "FP6_E2M3", "FP4_E2M1", "INT8"])
@pytest.mark.parametrize("rounding", ["nearest-even", "nearest-away", "toward-zero", "up", "down"])
def test_every_rounding_is_what_a_search_among_all_values_finds(name, rounding):
    """In range each mode picks the neighbour that its definition names, found by bisection in the sorted list."""
    fmt = formats.scalar(name)
    listed = {formats.decode(bits, fmt): bits for bits in reversed(range(2**fmt.bits))}
    values = np.array(sorted(value for value in listed if math.isfinite(value)))
    numbers = drawn(8_000, seed=5).astype(np.float64)
    numbers = numbers[(numbers > values[0]) & (numbers < values[-1])]
    place = np.searchsorted(values, numbers, side="right") - 1
    below, above = values[place], values[np.minimum(place + 1, len(values) - 1)]
    above = np.where(below == numbers, below, above)
    lower, upper = numbers - below, above - numbers  # exact: all have few bits and like exponents, or one is 0
    odd = np.array([listed[value] % 2 for value in below.tolist()], dtype=bool)
    outwards = np.where(numbers < 0, below, above)
    tie = {"nearest-even": np.where(odd, above, below), "nearest-away": outwards}.get(rounding, below)
    expected = {
        "toward-zero": np.where(numbers < 0, above, below),
        "up": above,
        "down": below,
    }.get(rounding, np.where(lower == upper, tie, np.where(lower < upper, below, above)))
    made = np.array([formats.encode(x, fmt, rounding=rounding).value for x in numbers.tolist()])
    assert len(numbers) > 500
    assert np.array_equal(made, expected)
