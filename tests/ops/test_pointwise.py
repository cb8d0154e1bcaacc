"""The table of operations an element is recounted: each formula is run on numbers that count what is done to them."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger import ops


class Counted:
    """A number that counts adds, multiplies and compares apart from transcendentals; a change of sign is free."""

    def __init__(self, value, tally):
        self.value, self.tally = value, tally

    def _made(self, value, kind):
        self.tally[kind] += 1
        return Counted(value, self.tally)

    def __add__(self, other):
        return self._made(self.value + _value(other), "flops")

    def __sub__(self, other):
        return self._made(self.value - _value(other), "flops")

    def __rsub__(self, other):
        return self._made(_value(other) - self.value, "flops")

    def __mul__(self, other):
        return self._made(self.value * _value(other), "flops")

    __radd__, __rmul__ = __add__, __mul__

    def __truediv__(self, other):
        return self._made(self.value / _value(other), "transcendentals")

    def __rtruediv__(self, other):
        return self._made(_value(other) / self.value, "transcendentals")

    def __neg__(self):
        return Counted(-self.value, self.tally)

    def compared(self, value):
        """`value`, which took one compare to find."""
        return self._made(value, "flops")

    def function(self, name):
        """A function of `math`."""
        return self._made(getattr(math, name)(self.value), "transcendentals")


def _value(x):
    return x.value if isinstance(x, Counted) else x


def _exp(x):
    return x.function("exp")


def _sigmoid(x):
    return 1 / (1 + _exp(-x))


def _positive(x):
    return x.compared(max(x.value, 0.0))


def _passed(x, dy):
    """Gradient dy where x > 0, else nothing."""
    return x.compared(dy.value if x.value > 0 else 0.0)


R2, BETA, KAPPA, PHI = 1 / math.sqrt(2), math.sqrt(2 / math.pi), 0.044715, 1 / math.sqrt(2 * math.pi)


def _gelu(x):
    return 0.5 * (1 + (x * R2).function("erf")) * x


def _gelu_backward(x, dy):
    cdf = 0.5 * (1 + (x * R2).function("erf"))
    pdf = PHI * _exp(x * x * -0.5)
    return dy * (cdf + x * pdf)


def _gelu_tanh(x):
    return 0.5 * x * (1 + (BETA * (x + KAPPA * (x * x * x))).function("tanh"))


def _gelu_tanh_backward(x, dy):
    square = x * x
    inner = (BETA * (x + KAPPA * (square * x))).function("tanh")
    left, right = 0.5 * x, 1 + inner
    slope = BETA * (1 + (3 * KAPPA) * square)
    return dy * (0.5 * right + left * (1 - inner * inner) * slope)


def _silu_backward(x, dy):
    s = _sigmoid(x)
    return dy * s * (1 + x * (1 - s))


def _of_result(backward, forward):
    """A gradient that starts from the kept result: making that again is not counted."""

    def gradient(x, dy):
        free = Counted(x.value, {"flops": 0, "transcendentals": 0})
        return backward(Counted(forward(free).value, x.tally), dy)

    return gradient


def _tanh(x):
    return x.function("tanh")


def _soft_cap(x):
    return 30 * (x * (1 / 30)).function("tanh")


FORMULAS = {
    "scale": (lambda x: x * 3, lambda _, dy: dy * 3),
    "add_number": (lambda x: x + 3, None),
    "neg": (lambda x: -x, None),
    "square": (lambda x: x * x, lambda x, dy: 2 * x * dy),
    "sqrt": (lambda x: x.function("sqrt"), _of_result(lambda y, dy: dy / (2 * y), lambda x: x.function("sqrt"))),
    "reciprocal": (lambda x: 1 / x, _of_result(lambda y, dy: -dy * y * y, lambda x: 1 / x)),
    "exp": (_exp, _of_result(lambda y, dy: dy * y, _exp)),
    "log": (lambda x: x.function("log"), lambda x, dy: dy / x),
    "sin": (lambda x: x.function("sin"), lambda x, dy: dy * x.function("cos")),
    "cos": (lambda x: x.function("cos"), lambda x, dy: -dy * x.function("sin")),
    "erf": (lambda x: x.function("erf"), lambda x, dy: (2 / math.sqrt(math.pi)) * _exp(-(x * x)) * dy),
    "tanh": (_tanh, _of_result(lambda y, dy: dy * (1 - y * y), _tanh)),
    "sigmoid": (_sigmoid, _of_result(lambda y, dy: dy * y * (1 - y), _sigmoid)),
    "silu": (lambda x: x / (1 + _exp(-x)), _silu_backward),
    "gelu": (_gelu, _gelu_backward),
    "gelu_tanh": (_gelu_tanh, _gelu_tanh_backward),
    "relu": (_positive, _passed),
    "relu_squared": (
        lambda x: _positive(x) * _positive(Counted(x.value, {"flops": 0, "transcendentals": 0})),
        lambda x, dy: 2 * _positive(x) * dy,
    ),
    "soft_cap": (
        _soft_cap,
        _of_result(lambda t, dy: dy * (1 - t * t), lambda x: (x * (1 / 30)).function("tanh")),
    ),
}


def _run(function, *values):
    tally = {"flops": 0, "transcendentals": 0}
    result = function(*(Counted(value, tally) for value in values))
    return result.value, tally


@pytest.mark.parametrize("name", FORMULAS)
def test_the_forward_formula_takes_as_many_operations_as_the_table_says(name):
    _, tally = _run(FORMULAS[name][0], 0.7)
    work = ops.pointwise(name, 1)[0].work
    assert (work.flops_full, work.transcendentals) == (tally["flops"], tally["transcendentals"])


@pytest.mark.parametrize("name", [name for name, (_, backward) in FORMULAS.items() if backward is not None])
def test_the_gradient_is_one_and_takes_as_many_operations_as_the_table_says(name):
    """The counted formula is held against a central difference, so that it is the gradient that was counted."""
    forward, backward = FORMULAS[name]
    value, tally = _run(backward, 0.7, 1.3)
    step = 1e-6
    slope = (_run(forward, 0.7 + step)[0] - _run(forward, 0.7 - step)[0]) / (2 * step)
    assert math.isclose(value, 1.3 * slope, rel_tol=1e-6)
    work = ops.pointwise_backward(name, 1)[0].work
    assert (work.flops_full, work.transcendentals) == (tally["flops"], tally["transcendentals"])


@given(st.sampled_from(sorted(ops.per_element)), st.integers(1, 10**9), st.sampled_from([2, 4]))
def test_cost_grows_with_elements_and_bytes_with_their_size(name, n, size):
    for rule in (ops.pointwise, ops.pointwise_backward):
        one, many = rule(name, 1, element_bytes=1)[0].work, rule(name, n, element_bytes=size)[0].work
        assert many.flops_full == n * one.flops_full
        assert many.transcendentals == n * one.transcendentals
        assert many.bytes_read == size * n * one.bytes_read
        assert many.bytes_written == size * n * one.bytes_written


def test_an_unheard_of_operation_is_an_error():
    with pytest.raises(KeyError, match="mish"):
        ops.pointwise("mish", 3)


def test_a_new_operation_is_registered_in_one_line(monkeypatch):
    monkeypatch.setitem(ops.per_element, "mish", ops.PerElement(1, 3, 9, 3))
    assert ops.pointwise("mish", 5)[0].work.transcendentals == 3 * 5


def test_a_result_in_another_format_is_written_in_it():
    work = ops.pointwise("add", 10, element_bytes=4, output_element_bytes=2)[0].work
    assert (work.bytes_read, work.bytes_written) == (2 * 4 * 10, 2 * 10)


def test_rotating_takes_two_products_and_a_sum_an_element():
    """RoFormer, equation 34: x·cos + turned·sin."""
    _, tally = _run(lambda x, c, t, s: x * c + t * s, 1.0, 0.5, 2.0, 0.25)
    (piece,) = ops.rotary(tokens=5, heads=3, rotary_size=8)
    assert piece.work.flops_full == 5 * 3 * 8 * tally["flops"]
    assert piece.work.bytes_read == 4 * (5 * 3 * 8 + 2 * 5 * 8)


def test_dropout_is_random_numbers_and_two_products():
    mask, apply = ops.dropout(10, element_bytes=2)
    assert (mask.kind, mask.work.bytes_written) == ("random", 10)
    assert (apply.work.flops_full, apply.work.bytes_read) == (2 * 10, (2 + 1) * 10)
    assert ops.dropout_backward(10, element_bytes=2)[0].work.flops_full == 2 * 10


def test_copies_and_fills_move_bytes_and_compute_nothing():
    (cast,) = ops.copy(10, element_bytes=4, output_element_bytes=2, op="cast")
    assert (cast.op, cast.kind, cast.work.flops_full) == ("cast", "copy", 0)
    assert (cast.work.bytes_read, cast.work.bytes_written) == (40, 20)
    assert ops.fill(10, element_bytes=8)[0].work.bytes_moved == 80
