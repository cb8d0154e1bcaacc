"""`IntegerFormat`: whole numbers of a fixed step, in two's complement."""

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IntegerFormat:
    """A two's complement integer times a power of two.

    Attributes:
        name: what this project calls it.
        title: what it is.
        bits: all bits of a pattern, the sign's included.
        step_exponent: a pattern k means k · 2^step_exponent; 0 for plain integers, -6 for the elements of MXINT8.
        is_symmetric: whether the most negative pattern is left unused, so that -x can be held wherever x can.
        cast_note: what to know of PyTorch's cast.
        aliases: other spellings.
        use: what it is used for.
        source: where its definition stands.
    """

    name: str
    title: str
    bits: int
    step_exponent: int
    is_symmetric: bool
    cast_note: str
    aliases: tuple[str, ...]
    use: str
    source: str

    @property
    def stored_bits(self) -> int:
        """What an element takes in memory."""
        return self.bits

    @property
    def bytes_per_element(self) -> int | float:
        """What an element takes in memory when packed."""
        return self.bits / 8 if self.bits % 8 else self.bits // 8

    @property
    def largest_integer(self) -> int:
        """The largest k."""
        return (1 << self.bits - 1) - 1

    @property
    def smallest_integer(self) -> int:
        """The smallest k that rounding makes."""
        return -self.largest_integer - (not self.is_symmetric)

    @property
    def step(self) -> float:
        """The distance between any two neighbours, which is also the smallest positive number."""
        return math.ldexp(1, self.step_exponent)

    @property
    def max(self) -> float:
        """The largest number."""
        return self.largest_integer * self.step

    @property
    def min(self) -> float:
        """The most negative number that rounding makes."""
        return self.smallest_integer * self.step

    @property
    def largest_exponent(self) -> int:
        """The exponent of the largest power of two that is held: 6 for INT8 (64), 0 for MXINT8's elements (1)."""
        return self.bits - 2 + self.step_exponent
