"""What a user's builder may return."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor

from torchledger.tracer import TraceError, trace
from torchledger.tracer.building import built


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
        (None, "returns NoneType"),
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
