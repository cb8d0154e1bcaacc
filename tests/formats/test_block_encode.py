import math

import ml_dtypes
import numpy as np
import pytest

from torchledger import formats
from torchledger.formats import FormatError

ELEMENTS = {
    "MXFP8_E4M3": (ml_dtypes.float8_e4m3fn, 448, 8),
    "MXFP8_E5M2": (ml_dtypes.float8_e5m2, 57344, 15),
    "MXFP6_E3M2": (ml_dtypes.float6_e3m2fn, 28, 4),
    "MXFP6_E2M3": (ml_dtypes.float6_e2m3fn, 7.5, 2),
    "MXFP4": (ml_dtypes.float4_e2m1fn, 6, 2),
}


def drawn(blocks: int, size: int, seed: int) -> np.ndarray:
    """Blocks of numbers of like size, each block of another."""
    generator = np.random.default_rng(seed)
    return (generator.standard_normal((blocks, size)) * 2.0 ** generator.integers(-40, 40, (blocks, 1))).astype(
        np.float32
    )


@pytest.mark.parametrize("name", ELEMENTS)
def test_mx_is_the_specifications_algorithm(name: str):
    """OCP MX 1.0, 6.3, in numpy: X = 2^(floor(log2 max) - emax), elements cast from V / X after clamping."""
    kind, largest, emax = ELEMENTS[name]
    for row in drawn(40, 32, seed=1):
        scale = 2.0 ** (math.frexp(float(np.abs(row).max()))[1] - 1 - emax)
        elements = np.clip(row / np.float32(scale), -largest, largest).astype(kind)
        made = formats.encode_blocks(row.tolist(), name)
        assert made.blocks[0].scale == scale
        expected = elements.view(np.uint8) & (2 ** formats.block(name).element.bits - 1)
        assert list(made.blocks[0].element_bits) == expected.tolist()
        assert list(made.values) == (elements.astype(np.float64) * scale).tolist()


def test_mxint8_is_the_specifications_algorithm():
    """Elements are rounded to 64ths and clamped to ±127/64."""
    for row in drawn(40, 32, seed=2):
        scale = 2.0 ** (math.frexp(float(np.abs(row).max()))[1] - 1)
        elements = np.clip(np.rint(row.astype(np.float64) / scale * 64), -127, 127) / 64
        assert list(formats.encode_blocks(row.tolist(), "mxint8").values) == (elements * scale).tolist()


def test_nvfp4_is_the_two_level_algorithm():
    """arXiv:2509.25149: tensor scale max/(448·6) in FP32, block scales in E4M3, elements in E2M1."""
    tensor = drawn(6, 16, seed=3) * np.float32(2.0**-3)
    tensor_scale = float(np.float32(float(np.abs(tensor).max()) / (448 * 6)))
    made = formats.encode_blocks(tensor.ravel().tolist(), "nvfp4")
    assert made.tensor_scale == tensor_scale
    for row, block in zip(tensor.astype(np.float64), made.blocks, strict=True):
        scale = np.array(min(np.abs(row).max() / 6 / tensor_scale, 448)).astype(ml_dtypes.float8_e4m3fn)
        assert block.scale == float(scale)
        divisor = float(scale) * tensor_scale
        elements = np.clip(row / divisor if divisor else row * 0, -6, 6).astype(ml_dtypes.float4_e2m1fn)
        assert list(block.values) == (elements.astype(np.float64) * divisor).tolist()


def test_the_floor_rule_may_cut_and_the_ceil_rule_does_not():
    """The largest of a block is 7: under 2^0 it is cut to 6, under 2^1 it is 8 (3.5 rounds to the even 4)."""
    assert formats.encode_blocks([7, 1], "mxfp4").values == (6, 1)
    assert formats.encode_blocks([7, 1], "mxfp4", scale_rule="ceil").values == (8, 1)
    assert formats.encode_blocks([6, 1], "mxfp4", scale_rule="ceil").blocks[0].scale == 1


def test_rows_are_cut_into_blocks():
    """40 numbers are a block of 32 and one of 8, each with its scale."""
    made = formats.encode_blocks([1.0] * 32 + [64.0] * 8, "mxfp8")
    assert [len(block.element_bits) for block in made.blocks] == [32, 8]
    assert [block.scale for block in made.blocks] == [2.0**-8, 2.0**-2]
    assert made.values == (1.0,) * 32 + (64.0,) * 8
    assert formats.encode_blocks([], "mxfp8").blocks == ()


@pytest.mark.parametrize("name", [fmt.name for fmt in formats.blocks()])
def test_zeros_stay(name: str):
    """A block of zeros has some scale, and zeros."""
    assert set(formats.encode_blocks([0.0] * 20, name).values) == {0.0}


@pytest.mark.parametrize("name", [fmt.name for fmt in formats.blocks() if fmt.name != "MXINT8"])
def test_zeros_keep_their_sign(name: str):
    """A negative zero has the sign bit, and so has a negative number that vanishes; two's complement has one zero."""
    made = formats.encode_blocks([4.0, -0.0, 0.0, -1e-30], name)
    assert [math.copysign(1, value) for value in made.values] == [1, -1, 1, -1]
    assert [bool(bits >> formats.block(name).element.bits - 1) for bits in made.blocks[0].element_bits] == [0, 1, 0, 1]


@pytest.mark.parametrize("name", [fmt.name for fmt in formats.blocks()])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_not_hidden(name: str, bad: float):
    """The scale becomes NaN, and so every element of the block."""
    values = formats.encode_blocks([1.0, bad, 2.0], name).values
    assert all(map(math.isnan, values))


def test_another_block_is_not_harmed():
    """In MX formats the NaN stays in its block."""
    values = formats.encode_blocks([math.nan] + [1.0] * 63, "mxfp8").values
    assert all(map(math.isnan, values[:32]))
    assert values[32:] == (1.0,) * 32


@pytest.mark.parametrize("name", [fmt.name for fmt in formats.blocks()])
def test_what_was_encoded_is_decoded(name: str):
    """Patterns of scale and elements give the values back, and encoding these changes no value of an MX block."""
    fmt = formats.block(name)
    row = drawn(1, fmt.block_size, seed=4)[0].tolist()
    made = formats.encode_blocks(row, fmt)
    block = made.blocks[0]
    assert formats.decode_block(block.scale_bits, block.element_bits, fmt, made.tensor_scale) == block.values
    if fmt.tensor_scale is None:
        assert formats.encode_blocks(block.values, fmt).values == block.values


def test_stochastic_elements():
    """Each value has its random number: 1.25 is halfway between 1 and 1.5 under a scale of 1."""
    made = formats.encode_blocks([4, 1.25, 1.25], "mxfp4", "stochastic", randoms=[0, 0.49, 0.5])
    assert made.values == (4, 1.5, 1)
    with pytest.raises(FormatError, match="3 values need as many random numbers, not 1"):
        formats.encode_blocks([4, 1, 1], "mxfp4", "stochastic", randoms=[0])
    with pytest.raises(FormatError, match="needs a random number"):
        formats.encode_blocks([4, 1, 1], "mxfp4", "stochastic")


def test_the_scale_of_the_tensor_must_be_known():
    """NVFP4 cannot be decoded without it, and MX formats have none."""
    with pytest.raises(FormatError, match="NVFP4 needs a scale of the tensor"):
        formats.decode_block(0, [0], "nvfp4")
    with pytest.raises(FormatError, match="MXFP4 has no scale of the tensor"):
        formats.decode_block(0, [0], "mxfp4", 1.0)
