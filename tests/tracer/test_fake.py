import copy

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from torchledger.tracer.copying import Copies
from torchledger.tracer.fake import Fakes, as_if_real
from torchledger.tracer.step import trace_step
from torchledger.tracer.undisturbed import undisturbed


def test_a_tied_parameter_stays_tied_and_a_view_stays_a_view():
    model = nn.ModuleDict({"embedding": nn.Embedding(4, 2), "head": nn.Linear(2, 4, bias=False)})
    model["head"].weight = model["embedding"].weight
    base = torch.zeros(6)
    fakes = Copies(Fakes(FakeTensorMode()))
    fake = fakes.of(model)
    assert fake["head"].weight is fake["embedding"].weight
    assert isinstance(fake["head"].weight, FakeTensor)
    left, right = fakes.of([base[:3], base[3:]])
    assert left.untyped_storage()._cdata == right.untyped_storage()._cdata


def test_an_optimizer_follows_its_parameters():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    fakes = Copies(Fakes(FakeTensorMode()))
    fake_model = fakes.of(model)
    fake = fakes.of(optimizer)
    assert type(fake) is torch.optim.AdamW
    assert fake.param_groups[0]["lr"] == 0.25
    assert [id(p) for p in fake.param_groups[0]["params"]] == [id(p) for p in fake_model.parameters()]


def test_copying_is_as_it_was_afterwards():
    """`copy.deepcopy` of a tensor makes a real tensor again."""
    before = dict(copy._deepcopy_dispatch)
    Copies(Fakes(FakeTensorMode())).of(nn.Linear(2, 2))
    assert copy._deepcopy_dispatch == before
    assert not isinstance(copy.deepcopy(torch.zeros(2)), FakeTensor)


def test_plain_tensors_on_a_module_are_faked_too():
    """Tensors that are no parameters, inside a dict on a module."""
    model = nn.Linear(2, 2)
    model.tables = {"mask": [torch.zeros(3)]}
    fake = Copies(Fakes(FakeTensorMode())).of(model)
    assert isinstance(fake.tables["mask"][0], FakeTensor)
    assert not isinstance(model.tables["mask"][0], FakeTensor)


def test_clipping_takes_the_path_of_real_tensors():
    """One `_foreach_norm` instead of a norm a parameter; torch's lists are as before afterwards."""
    from torch.utils._foreach_utils import _foreach_supported_types

    before = list(_foreach_supported_types)
    with as_if_real():
        assert FakeTensor in _foreach_supported_types
    assert _foreach_supported_types == before


@pytest.mark.parametrize("exception", [None, ValueError])
def test_random_streams_are_put_back(exception):
    before = torch.get_rng_state()
    try:
        with undisturbed():
            torch.randn(3)
            if exception:
                raise exception
    except ValueError:
        pass
    assert torch.equal(before, torch.get_rng_state())


def test_a_step_may_copy_a_model():
    """A moving average is a deep copy: its parameters are new, keep their flags, and ties in it stay ties."""

    def build():
        model = nn.ModuleDict({"embedding": nn.Embedding(4, 2), "head": nn.Linear(2, 4, bias=False)})
        model["head"].weight = model["embedding"].weight
        model.register_buffer("scale", torch.ones(2))
        model["embedding"].weight.requires_grad_(requires_grad=False)
        average = copy.deepcopy(model)
        assert average["head"].weight is average["embedding"].weight is not model["head"].weight
        assert isinstance(average["head"].weight, nn.Parameter)
        assert not average["head"].weight.requires_grad
        return lambda: average["head"].weight.lerp_(model["head"].weight, 0.1)

    copies = [block for block in trace_step(build).timeline.blocks if block.op == "aten.clone.default"]
    assert sorted(block.num_bytes for block in copies) == [2 * 4, 4 * 2 * 4]
    assert FakeTensor not in copy._deepcopy_dispatch


def test_a_result_cannot_be_copied():
    """As torch has it: what was computed from something that trains is no leaf."""

    def build():
        x = torch.ones(2, requires_grad=True)
        return lambda: copy.deepcopy(x * 2)

    with pytest.raises(RuntimeError, match="graph leaves"):
        trace_step(build)
