import pytest

from torchledger import ops


def _sigmoid(a, one):
    return one / (one + (-a).exp())


def _softplus(a):
    return a.exp().log1p()


def _tanh(a):
    a.log1p()  # one call of a library function
    return a


def _glu(a, one):
    return a * _sigmoid(one(2.0), one())


FORWARD = {
    "hardtanh": lambda a, _: (a > -1.0, a < 1.0),
    "hardsigmoid": lambda a, one: min(max(a + 3.0, one(0.0)), one(6.0)) * (1 / 6),
    "hardswish": lambda a, one: a * (min(max(a + 3.0, one(0.0)), one(6.0)) * (1 / 6)),
    "leaky_relu": lambda a, _: (a > 0.0, a * 0.01),
    "softshrink": lambda a, _: (a > 0.5, a < -0.5, a - 0.5),
    "hardshrink": lambda a, _: (a > -0.5, a < 0.5),
    "threshold": lambda a, _: a > 0.0,
    "elu": lambda a, _: (a > 0.0, (a * 1.0).exp() * 1.0),
    "mish": lambda a, _: a * _tanh(_softplus(a)),
    "softplus": lambda a, _: (a * 1.0 > 20.0, (a.exp().log1p()) / 1.0),
    "glu": _glu,
}


@pytest.mark.parametrize("name", FORWARD)
def test_an_activation_counts_what_its_formula_does(counted, name):
    """Written as ATen's kernel is, branches that are not taken included."""
    FORWARD[name](counted.number(0.3), counted.number)
    work = ops.activation(name, 1)[0].work
    assert (work.flops_full, work.transcendentals) == counted.taken()


BACKWARD = {
    "hardswish": lambda a, dy: (a < -3.0, a > 3.0, dy * (a * (1 / 3) + 0.5)),
    "hardsigmoid": lambda a, dy: (a > -3.0, a < 3.0, dy * (1 / 6)),
    "leaky_relu": lambda a, dy: (a > 0.0, dy * 0.01),
    "softplus": lambda a, dy: ((a * 1.0) > 20.0, dy * (a.exp() / (a + 1.0))),
    "prelu": lambda a, dy: (a > 0.0, dy * 0.2, dy * a),
    "elu": lambda a, dy: (a > 0.0, dy * 1.0 * 1.0 * (a * 1.0).exp()),
    "elu_of_result": lambda a, dy: (a > 0.0, dy * 1.0 * (a + 1.0)),
}


@pytest.mark.parametrize("name", BACKWARD)
def test_a_gradient_counts_what_its_formula_does(counted, name):
    BACKWARD[name](counted.number(0.3), counted.number(0.7))
    piece = ops.activation_backward(name, 1)[0]
    flops, transcendentals = counted.taken()
    assert (piece.work.flops_full, piece.work.transcendentals, piece.gradient_of) == (flops, transcendentals, "input")


def test_work_grows_with_elements():
    assert ops.activation("hardswish", 70)[0].work.flops_full == 70 * 5
