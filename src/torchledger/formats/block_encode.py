"""Numbers to blocks with a shared scale, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from torchledger.formats.block import BlockFormat
from torchledger.formats.catalog import block
from torchledger.formats.decode import decode
from torchledger.formats.encode import encode
from torchledger.formats.format import FormatError
from torchledger.formats.rounding import Rational, Rounding

ScaleRule = Literal["floor", "ceil"]


@dataclass(frozen=True, slots=True)
class EncodedBlock:
    """Numbers that share a scale.

    Attributes:
        scale_bits: the pattern of the scale.
        scale: what it means.
        element_bits: the pattern of each element.
        values: what each element means, all scales applied, exactly; NaN where the scale is.
    """

    scale_bits: int
    scale: float
    element_bits: tuple[int, ...]
    values: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class EncodedBlocks:
    """A row of numbers in a block format.

    Attributes:
        format: the format's name.
        blocks: in order; the last may have fewer elements.
        tensor_scale: the scale of all blocks, None where the format has none.
    """

    format: str
    blocks: tuple[EncodedBlock, ...]
    tensor_scale: float | None

    @property
    def values(self) -> tuple[float, ...]:
        """What all elements mean, in order."""
        return tuple(value for each in self.blocks for value in each.values)


def encode_blocks(
    values: Iterable[Rational],
    block_format: str | BlockFormat,
    rounding: Rounding = "nearest-even",
    *,
    scale_rule: ScaleRule = "floor",
    randoms: Iterable[Rational] | None = None,
) -> EncodedBlocks:
    """Put a row of numbers into blocks.

    *A power of two as scale* (MX): with e_max the exponent of the largest element, `floor` is the rule of the OCP
    specification (section 6.3): 2^(floor(log2(largest magnitude)) - e_max); the largest numbers of a block may then be
    cut. `ceil` takes the smallest power of two under which nothing is cut (NVIDIA's recipe for MXFP8,
    arXiv:2506.08027). It is held within 2^-127 and 2^127; a block of zeros has the smallest. An infinity or NaN in a
    block makes its scale NaN, and so every element.

    *Two scales* (NVFP4, arXiv:2509.25149): the tensor's is largest magnitude / (448·6), rounded to FP32; a block's is
    its largest magnitude / 6 / the tensor's, rounded to the nearest E4M3, which it may not exceed. Every quotient is
    exact and rounded once, where kernels round in FP32 on the way. Where an infinity or NaN is in the tensor, the
    scale of every block is NaN.

    Elements are x / scales, rounded and cut to the largest one.

    >>> made = encode_blocks([1.0, -7.0, 0.3], "mxfp4")
    >>> made.blocks[0].scale, made.values
    (1.0, (1.0, -6.0, 0.5))
    >>> encode_blocks([1.0, -7.0, 0.3], "mxfp4", scale_rule="ceil").values
    (1.0, -8.0, 0.0)

    Args:
        values: the numbers of one row (blocks lie along the last axis).
        block_format: a block format or its name.
        rounding: of the elements, as for `encode`.
        scale_rule: how a power of two is found; of no effect on NVFP4.
        randoms: for `stochastic`, a number of [0, 1) for each value.

    Raises:
        FormatError: the format is unknown or has no blocks; as for `encode`; or there are not as many random numbers
            as values.
    """
    fmt = block(block_format)
    row = list(values)
    drawn: list[Rational | None] = [None] * len(row) if randoms is None else list(randoms)
    if len(drawn) != len(row):
        raise FormatError(f"{len(row)} values need as many random numbers, not {len(drawn)}")
    tensor_scale = _tensor_scale(row, fmt)
    made = []
    for start in range(0, len(row), fmt.block_size):
        stop = start + fmt.block_size
        scale_bits = _scale_bits(_largest(row[start:stop]), fmt, scale_rule, tensor_scale)
        made.append(_block(row[start:stop], drawn[start:stop], fmt, rounding, (scale_bits, tensor_scale)))
    return EncodedBlocks(fmt.name, tuple(made), tensor_scale)


def decode_block(
    scale_bits: int, element_bits: Iterable[int], block_format: str | BlockFormat, tensor_scale: float | None = None
) -> tuple[float, ...]:
    """What the elements of a block mean, exactly; all NaN where the scale is.

    >>> decode_block(0x80, [0b0010, 0b1111], "mxfp4")
    (2.0, -12.0)

    Raises:
        FormatError: the format is unknown or has no blocks; a pattern has too many bits; or a tensor scale is missing
            or not asked for.
    """
    fmt = block(block_format)
    if (tensor_scale is None) != (fmt.tensor_scale is None):
        need = "needs a scale of the tensor" if fmt.tensor_scale else "has no scale of the tensor"
        raise FormatError(f"{fmt.name} {need}")
    scale = decode(scale_bits, fmt.scale) * (1.0 if tensor_scale is None else tensor_scale)
    return tuple(decode(bits, fmt.element) * scale for bits in element_bits)


def _tensor_scale(row: Sequence[Rational], fmt: BlockFormat) -> float | None:
    if fmt.tensor_scale is None:
        return None
    largest = _largest(row)
    if largest is None:
        return 1.0
    scale = encode(
        largest / (Fraction(fmt.scale.max) * Fraction(fmt.element.max)), fmt.tensor_scale, overflow="saturate"
    ).value
    return scale or 1.0  # zeros, or numbers too small for FP32's smallest scale


def _block(
    row: Sequence[Rational],
    drawn: Sequence[Rational | None],
    fmt: BlockFormat,
    rounding: Rounding,
    scales: tuple[int, float | None],
) -> EncodedBlock:
    scale_bits, tensor_scale = scales
    scale = decode(scale_bits, fmt.scale)
    divisor = Fraction(0) if math.isnan(scale) else Fraction(scale) * Fraction(tensor_scale or 1)
    bits = []
    for value, random in zip(row, drawn, strict=True):
        bits.append(encode(_quotient(value, divisor), fmt.element, "saturate", rounding, random).bits)
    return EncodedBlock(scale_bits, scale, tuple(bits), decode_block(scale_bits, bits, fmt, tensor_scale))


def _quotient(value: Rational, divisor: Fraction) -> Rational:
    """A number by its scales, with its sign also where it is zero; zero under a scale that is zero or NaN."""
    if not divisor or value == 0:
        return math.copysign(0.0, value) if isinstance(value, float) else 0.0
    return Fraction(*value.as_integer_ratio()) / divisor


def _scale_bits(largest: Fraction | None, fmt: BlockFormat, rule: ScaleRule, tensor_scale: float | None) -> int:
    if largest is None:
        return encode(math.nan, fmt.scale).bits
    if tensor_scale is not None:
        return encode(largest / Fraction(fmt.element.max) / Fraction(tensor_scale), fmt.scale, "saturate").bits
    if largest == 0:
        return 0
    if rule == "floor":
        return encode(largest / Fraction(2) ** fmt.element.largest_exponent, fmt.scale, "saturate", "down").bits
    return encode(largest / Fraction(fmt.element.max), fmt.scale, "saturate", "up").bits


def _largest(row: Sequence[Rational]) -> Fraction | None:
    """The largest magnitude; None if one is infinite or NaN, 0 for no numbers."""
    if any(isinstance(value, float) and not math.isfinite(value) for value in row):
        return None
    return max((abs(Fraction(*value.as_integer_ratio())) for value in row), default=Fraction(0))
