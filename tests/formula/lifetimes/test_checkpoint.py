"""A checkpoint keeps its inputs, and makes the rest again."""

from torchledger.formula.lifetimes.autograd import Parameter, backward
from torchledger.formula.lifetimes.checkpoint import checkpoint
from torchledger.formula.lifetimes.memory import Memory
from torchledger.formula.lifetimes.operations import like, mul, total
from torchledger.formula.lifetimes.tensors import made


def test_only_its_input_is_kept_until_it_runs_again():
    """Two products of 400 bytes keep their operands, 800 bytes; in a checkpoint the input alone, 400."""
    kept = {}
    for is_checkpoint in (False, True):
        memory = Memory()
        weight = Parameter(memory, "weight", (100,), "fp32", trained=True)

        def run(x, weight=weight):
            return (mul(mul(x, weight.tensor), weight.tensor),)

        x = made(memory, (100,), "fp32")
        (y,) = checkpoint(memory, run, x) if is_checkpoint else run(x)
        loss = total(y)
        del x, y
        kept[is_checkpoint] = memory.now["activations"]
        backward(loss, like(loss))
        del loss
        assert memory.total == 400  # of the parameter's gradient
    assert kept == {False: 800, True: 400}


def test_random_numbers_are_drawn_again_from_the_state_that_is_kept():
    memory = Memory()
    weight = Parameter(memory, "weight", (100,), "fp32", trained=True)
    (y,) = checkpoint(memory, lambda x: (mul(x, weight.tensor),), made(memory, (100,), "fp32"), draws=True)
    assert memory.now["activations"] == 400 + 5056  # a Mersenne Twister of torch
    del y
