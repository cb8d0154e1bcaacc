"""Gradients come, are added up, and go as torch's engine does it."""

from torchledger.formula.lifetimes.autograd import Parameter, backward
from torchledger.formula.lifetimes.memory import Memory
from torchledger.formula.lifetimes.operations import add, like, mul, scale, total
from torchledger.formula.lifetimes.tensors import made
from torchledger.formula.lifetimes.views import reshape


def _parameter(memory, *shape):
    return Parameter(memory, "weight", shape, "fp32", trained=True)


def test_what_is_kept_goes_with_the_node_that_kept_it():
    """x·w keeps x for w's gradient, 4·100 bytes; afterwards there is the gradient alone."""
    memory = Memory()
    weight = _parameter(memory, 100)
    loss = total(mul(made(memory, (100,), "fp32"), weight.tensor))
    assert memory.now["activations"] == 400
    backward(loss, like(loss))
    del loss
    assert (memory.now["activations"], memory.now["gradients"], memory.total) == (0, 400, 400)


def test_a_gradient_that_nobody_else_holds_is_added_in_place():
    """Two products of one parameter: the second gradient goes into the first, so that two are alive at most."""
    memory = Memory()
    weight = _parameter(memory, 100)
    loss = total(add(scale(weight.tensor), scale(weight.tensor)))
    memory.forget()
    backward(loss, like(loss))
    assert memory.most == memory.fullest["activations"] + 2 * 400 + 4 + 4  # loss, and the number that begins it


def test_a_view_is_never_added_into():
    """Autograd keeps what a view is of, and so does not own it alone: the sum is a third tensor."""
    memory = Memory()
    weight = _parameter(memory, 10, 10)
    flat = [reshape(scale(reshape(weight.tensor, 100)), 10, 10) for _ in range(2)]
    loss = total(add(*flat))
    del flat
    memory.forget()
    backward(loss, like(loss))
    assert memory.most == memory.fullest["activations"] + 3 * 400 + 4 + 4
