"""What a user's builder may return."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from torchledger.tracer import TraceError, trace
from torchledger.tracer.building import built
from torchledger.tracer.targets import target


def test_a_model_uses_no_memory_and_random_streams_stay():
    """A terabyte of weights, initialised."""
    before = torch.get_rng_state()
    made = built(lambda: nn.Linear(500_000, 500_000))
    assert isinstance(made.model.weight, FakeTensor)
    assert made.batch is None
    assert torch.equal(torch.get_rng_state(), before)


def test_a_pair_a_dict_a_step_and_a_model_with_an_example():
    def net():
        return nn.Linear(2, 2)

    class Lightning(nn.Linear):
        example_input_array = torch.zeros(1, 2)

    pair = built(lambda: (net(), torch.zeros(1, 2)))
    assert tuple(pair.batch.shape) == (1, 2)
    full = built(lambda: {"model": net(), "batch": torch.zeros(3, 2), "gradient_clip": 1.0})
    assert full.options == {"gradient_clip": 1.0}
    assert built(lambda: lambda: None).step is not None
    assert tuple(built(lambda: Lightning(2, 2)).batch.shape) == (1, 2)
    assert trace(pair.model, pair.batch, loss=lambda y, _: y.sum()).model_flops == 2 * 2 * 2 * 2


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (None, "returns nothing"),
        (3, "returns int"),
        ((1, 2, 3), "returns 3 things"),
        ({"batch": 1}, "a dict with no `model`"),
        ({"model": nn.Linear(1, 1), "optimiser": 1}, "unknown keys optimiser. Its keys are model"),
    ],
)
def test_anything_else_is_told(returned, said):
    with pytest.raises(TraceError) as caught:
        built(lambda: returned)
    assert said in str(caught.value)


WEIGHTS, OPTIMIZED, BATCH = nn.Linear(2, 2), nn.Linear(2, 2), torch.ones(1, 2)
OPTIMIZER = torch.optim.SGD(OPTIMIZED.parameters(), lr=0.1)


def _own_step():
    loss = OPTIMIZED(BATCH).sum()
    loss.backward()
    OPTIMIZER.step()
    return loss


def test_a_step_over_models_that_it_reaches_is_a_step_and_leaves_them_alone():
    """It is run once to see what it returns: over copies, so that no fake gradient lands on the user's weights."""
    before = OPTIMIZED.weight.detach().clone()
    made = built(_own_step)
    assert made.step is _own_step
    assert OPTIMIZED.weight.grad is None
    assert torch.equal(OPTIMIZED.weight, before)


def test_a_model_of_a_global_and_a_list():
    assert isinstance(built(lambda: [WEIGHTS, BATCH]).model, nn.Linear)
    assert built(WEIGHTS).model is WEIGHTS


async def _coroutine():
    return WEIGHTS


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (_coroutine, "_coroutine is a generator or coroutine: to call it runs nothing"),
        (lambda size: nn.Linear(size, size), "a builder is called with nothing, and this one has a missing"),
        (lambda: nn.Linear(2, 2).cuda(), "a device that is not there"),
        (lambda: nn.Linear(int(torch.rand(1).item()), 2), "needs the values of a tensor"),
    ],
    ids=["coroutine", "argument", "cuda", "item"],
)
def test_what_cannot_be_built_says_why(build, said):
    with pytest.raises(TraceError, match=said):
        built(build)


def test_a_builder_may_move_its_model_to_the_target():
    """`.cuda()` is right for a target of CUDA, where no GPU is there either."""
    made = built(lambda: (nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda")), target("cuda"))
    assert isinstance(made.model.weight, FakeTensor)
    assert trace(made.model, made.batch, loss=lambda y, _: y.sum(), target="cuda").model_flops == 2 * 2 * 2 * 2
