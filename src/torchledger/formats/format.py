"""`NumberFormat`: a binary floating-point format as its bits, and all that follows from them.

The value of a pattern with sign s, exponent field E and mantissa field M (m bits) is, with bias b::

    E > 0      (-1)^s · 2^(E - b)     · (1 + M / 2^m)     normal
    E = 0      (-1)^s · 2^(1 - b)     · (0 + M / 2^m)     subnormal, or zero

save for the patterns that are set aside for infinity and NaN (IEEE 754-2019, section 3.4). A format of scales (E8M0)
has neither sign nor zero: its pattern E is 2^(E - b), E = 0 included (OCP Microscaling Formats 1.0, section 5.4.1).
"""

import math
from dataclasses import dataclass
from typing import Literal


class FormatError(ValueError):
    """An unknown format, a pattern that is none, or a value that is no number."""


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """A binary floating-point format.

    Attributes:
        name: what this project calls it.
        title: what it is.
        exponent_bits, mantissa_bits: field widths; the mantissa's leading one is not stored.
        bias: what the exponent field is above the exponent.
        signed: whether there is a sign bit; only E8M0 has none.
        has_zero: whether an exponent field of 0 means zero and subnormals; in E8M0 it is one more power of two.
        has_infinity: whether all exponent bits and no mantissa bit set is an infinity.
        nan: `exponent` has NaN where all exponent bits and some mantissa bit are set; `all_ones` only where every bit
            is (E4M3, whose other patterns of the largest exponent are numbers); `none` has none (FP6, FP4).
        stored_bits: what an element takes in memory, packed without gaps (TF32 lives in 32 bits, FP6 in 6).
        cast_saturates: whether PyTorch's plain cast cuts what is too large to the largest value.
        cast_note: what to know of that, or nothing.
        aliases: other spellings.
        use: what it is used for.
        source: where its definition stands.
    """

    name: str
    title: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: bool
    has_zero: bool
    has_infinity: bool
    nan: Literal["exponent", "all_ones", "none"]
    stored_bits: int
    cast_saturates: bool
    cast_note: str
    aliases: tuple[str, ...]
    use: str
    source: str

    @property
    def bits(self) -> int:
        """All bits of a pattern, the sign's included (19 for TF32)."""
        return self.signed + self.exponent_bits + self.mantissa_bits

    @property
    def bytes_per_element(self) -> int | float:
        """What an element takes in memory when packed: 4 for TF32, 0.75 for the FP6 formats, 0.5 for FP4."""
        return self.stored_bits / 8 if self.stored_bits % 8 else self.stored_bits // 8

    @property
    def smallest_exponent(self) -> int:
        """The exponent of the smallest normal number, and of all subnormal ones."""
        return self.has_zero - self.bias

    @property
    def largest_pattern(self) -> int:
        """The pattern of the largest finite number."""
        every = (1 << self.exponent_bits + self.mantissa_bits) - 1
        if self.nan == "exponent":
            return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1
        return every - 1 if self.nan == "all_ones" else every

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest finite number."""
        return (self.largest_pattern >> self.mantissa_bits) - self.bias

    @property
    def max(self) -> float:
        """The largest finite number."""
        significand = self.largest_pattern & ((1 << self.mantissa_bits) - 1) | 1 << self.mantissa_bits
        return math.ldexp(significand, self.largest_exponent - self.mantissa_bits)

    @property
    def smallest_normal(self) -> float:
        """The smallest positive number with a full mantissa."""
        return math.ldexp(1, self.smallest_exponent)

    @property
    def smallest_subnormal(self) -> float:
        """The smallest positive number; E8M0 has no subnormal ones, there it is the smallest normal."""
        return math.ldexp(1, self.smallest_exponent - self.mantissa_bits)

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger number."""
        return math.ldexp(1, -self.mantissa_bits)

    @property
    def decimal_digits(self) -> int:
        """Decimal digits that always survive the way from text to the format and back (C's DIG): floor(m·log10 2)."""
        return math.floor(self.mantissa_bits * math.log10(2))

    @property
    def round_trip_digits(self) -> int:
        """Decimal digits that always tell two numbers apart (C's DECIMAL_DIG): ceil(1 + (m + 1)·log10 2)."""
        return math.ceil(1 + (self.mantissa_bits + 1) * math.log10(2))

    @property
    def largest_counting_integer(self) -> int:
        """The last integer that counting in steps of one reaches.

        There n + 1 rounds back to n, or is beyond the largest number (7 in FP6 E2M3, which ends at 7.5).
        """
        return min(1 << self.mantissa_bits + 1, math.floor(self.max))
