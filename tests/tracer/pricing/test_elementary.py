import pytest
import torch
from torch.nn import functional

X = torch.full((10,), 0.5)
Z = torch.full((10,), 0.5 + 0.5j)


@pytest.mark.parametrize(
    ("run", "flops", "transcendentals"),
    [
        (X.asin, 0, 10),
        (X.asin_, 0, 10),
        (lambda: torch.asin(X, out=torch.empty(10)), 0, 10),
        (lambda: torch._foreach_expm1([X, X.clone()[:4]]), 0, 14),
        (X.sign, 30, 0),
        (lambda: torch.hypot(X, X), 30, 10),
        (lambda: torch.logaddexp(X, X), 40, 20),
        (X.logit, 10, 20),
        (lambda: X.logit(eps=1e-6), 30, 20),
        (lambda: torch.special.entr(X), 20, 10),
        (lambda: torch.mvlgamma(X + 2, 2), 10 + 10 * 4, 20),
        (lambda: Z * Z, 60, 0),
        (lambda: Z * 2.0, 20, 0),
        (lambda: Z + Z, 20, 0),
        (lambda: Z / Z, 90, 20),
        (Z.abs, 30, 10),
        (lambda: torch.polar(X, X), 20, 20),
        (lambda: functional.hardswish(X), 50, 0),
        (lambda: functional.mish(X), 10, 30),
        (lambda: functional.selu(X), 30, 10),
        (lambda: functional.leaky_relu(X), 20, 0),
        (lambda: functional.softplus(X), 20, 30),
        (lambda: functional.glu(X), 2 * 5, 2 * 5),
        (lambda: functional.prelu(X, torch.ones(1)), 20, 0),
        (lambda: functional.logsigmoid(X), 30, 20),
    ],
)
def test_functions_of_an_element(lines, run, flops, transcendentals):
    """Ten elements, each what its formula takes, in place, into `out`, and in lists."""
    found = [line for line in lines(run) if line.kind != "copy"]
    assert sum(line.total.flops_full for line in found) == flops
    assert sum(line.total.transcendentals for line in found) == transcendentals


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (functional.hardswish, 5), (functional.hardsigmoid, 3), (functional.hardtanh, 2), (functional.leaky_relu, 2),
        (functional.mish, 7), (functional.elu, 5), (functional.softplus, 4), (functional.hardshrink, 2),
        (functional.softshrink, 2), (functional.logsigmoid, 5), (functional.silu, 6),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)  # fmt: skip
def test_gradients(backward, function, flops):
    x = X.clone().requires_grad_()
    (line,) = backward(lambda: function(x))
    assert (line.work.flops_full, line.gradient_of) == (10 * flops, "input")


def test_a_result_that_is_given_is_written_and_not_read(lines):
    """One operand of 10 floats."""
    line = next(line for line in lines(lambda: torch.asin(X, out=torch.empty(10))) if line.op == "asin")
    assert (line.work.bytes_read, line.work.bytes_written) == (40, 40)
