"""Numbers that count what is done with them: formulas run as they are written, and compared with the counts."""

import math

import pytest


class Counted:
    """A number; every add, multiply and compare of one is a FLOP, every division, root and exp a transcendental."""

    flops = 0
    transcendentals = 0

    def __init__(self, value=1.0):
        self.value = value

    @classmethod
    def reset(cls):
        """Count from nothing."""
        cls.flops = cls.transcendentals = 0

    def _flop(self, value):
        Counted.flops += 1
        return Counted(value)

    def __add__(self, other):
        return self._flop(self.value + _of(other))

    def __sub__(self, other):
        return self._flop(self.value - _of(other))

    def __mul__(self, other):
        return self._flop(self.value * _of(other))

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return self._flop(_of(other) - self.value)

    def __neg__(self):
        return Counted(-self.value)

    def __gt__(self, other):
        Counted.flops += 1
        return self.value > _of(other)

    def __lt__(self, other):
        Counted.flops += 1
        return self.value < _of(other)

    def __truediv__(self, other):
        Counted.transcendentals += 1
        return Counted(self.value / _of(other))

    def __rtruediv__(self, other):
        Counted.transcendentals += 1
        return Counted(_of(other) / self.value)

    def sqrt(self):
        """A root."""
        Counted.transcendentals += 1
        return Counted(math.sqrt(abs(self.value)))

    def rsqrt(self):
        """One over a root, as one call."""
        Counted.transcendentals += 1
        return Counted(1 / math.sqrt(abs(self.value) + 1e-9))

    def exp(self):
        """An exponential."""
        Counted.transcendentals += 1
        return Counted(math.exp(self.value))

    def log1p(self):
        """A logarithm."""
        Counted.transcendentals += 1
        return Counted(math.log1p(self.value))


def _of(other):
    return other.value if isinstance(other, Counted) else other


def _sum(numbers):
    total, *rest = numbers
    for number in rest:
        total = total + number
    return total


@pytest.fixture
def counted():
    """A maker of n such numbers, a sum of n - 1 adds, and what has been counted since the last question."""
    Counted.reset()

    class Counts:
        number = Counted
        sum = staticmethod(_sum)

        @staticmethod
        def numbers(n):
            return [Counted(0.1 + 0.37 * i) for i in range(n)]

        @staticmethod
        def taken():
            taken = Counted.flops, Counted.transcendentals
            Counted.reset()
            return taken

    return Counts
