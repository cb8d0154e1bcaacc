import pytest

from torchledger import ops


class Pair:
    """A complex number of two counted ones."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __add__(self, other):
        return Pair(self.a + other.a, self.b + other.b)

    def __mul__(self, other):
        return Pair(self.a * other.a - self.b * other.b, self.a * other.b + self.b * other.a)

    def norm(self):
        """The square of its size."""
        return self.a * self.a + self.b * self.b

    def __truediv__(self, other):
        top, bottom = self * Pair(other.a, -other.b), other.norm()
        return Pair(top.a / bottom, top.b / bottom)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("add", lambda z, w: z + w),
        ("mul", lambda z, w: z * w),
        ("div", lambda z, w: z / w),
        ("abs", lambda z, _: z.norm().sqrt()),
        ("scale", lambda z, _: (z.a * 2.0, z.b * 2.0)),
        ("addcmul", lambda z, w: z + Pair(*_scaled(z * w))),
        ("reciprocal", lambda z, _: (z.a / (n := z.norm()), z.b / n)),
    ],
)
def test_a_complex_number_costs_what_its_parts_do(counted, name, formula):
    """Add 2, multiply 6, divide 9 and two divisions."""
    formula(Pair(*counted.numbers(2)), Pair(*counted.numbers(2)))
    work = ops.elementwise(name, 1, complex_numbers=True)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


def test_a_library_function_is_one_transcendental_and_no_flop():
    for name in ("acos", "log1p", "lgamma", "erfinv", "special_i1e"):
        work = ops.elementwise(name, 10)[0].work
        assert (work.flops_full, work.transcendentals) == (0, 10), name


def test_rounding_is_one_flop_and_a_sign_two_compares_and_a_difference():
    assert ops.elementwise("round", 10)[0].work.flops_full == 10
    assert ops.elementwise("sign", 10)[0].work.flops_full == 30


def test_operands_and_result_are_moved():
    work = ops.elementwise("hypot", 10, operands=2, element_bytes=2)[0].work
    assert (work.bytes_read, work.bytes_written) == (2 * 2 * 10, 2 * 10)


def test_an_unknown_name_is_an_error():
    with pytest.raises(KeyError):
        ops.elementwise("no_such_function", 1)


def _scaled(z):
    return z.a * 2.0, z.b * 2.0
