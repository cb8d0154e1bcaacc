"""Tests of `runs_of`: which layers count as equal."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer.folding.equal import Plan, runs_of


class Numbered(nn.Module):
    def __init__(self, number: int, size: int = 4) -> None:
        super().__init__()
        self.number, self.linear = number, nn.Linear(4, size)


def runs(*layers):
    return runs_of(nn.ModuleDict({"layers": nn.ModuleList(layers)}))


def test_layers_of_the_same_class_and_shapes_are_a_run():
    (run,) = runs(*[nn.Linear(4, 4) for _ in range(9)])
    assert (run.path, run.num_units, run.period, run.is_numbered) == ("layers", 9, 1, False)
    assert list(run.left_out) == [4, 5, 6, 7]  # the first four and the last are run
    assert run.prefixes(5) == ("layers.5",)


def test_a_number_as_far_apart_as_the_layers_is_no_difference():
    (run,) = runs(*[Numbered(number) for number in range(9)])
    assert run.is_numbered
    assert not runs(*[Numbered(number % 3) for number in range(8)])


@pytest.mark.parametrize("other", [nn.Linear(4, 5), nn.Linear(4, 4, bias=False), nn.Linear(4, 4).double(), nn.ReLU()])
def test_a_run_ends_where_a_layer_is_another(other):
    (run,) = runs(other, *[nn.Linear(4, 4) for _ in range(8)])
    assert run.names == tuple(str(number) for number in range(1, 9))


def test_units_of_several_layers():
    (run,) = runs(*[layer for _ in range(8) for layer in (nn.Linear(4, 4), nn.ReLU())])
    assert (run.period, run.num_units) == (2, 8)
    assert run.prefixes(3) == ("layers.6", "layers.7")


def test_what_is_shared_frozen_or_hooked_is_not_equal():
    layer = nn.Linear(4, 4)
    assert not runs(*[layer] * 9)
    tied = [nn.Linear(4, 4) for _ in range(9)]
    for each in tied:
        each.weight = tied[0].weight
    assert not runs(*tied)
    hooked = [nn.Linear(4, 4) for _ in range(9)]
    hooked[4].register_forward_hook(lambda *_: None)
    assert not runs(*hooked)
    frozen = [nn.Linear(4, 4) for _ in range(9)]
    frozen[4].requires_grad_(requires_grad=False)
    assert not runs(*frozen)
    watched = [nn.Linear(4, 4) for _ in range(9)]
    watched[4].weight.register_hook(lambda gradient: gradient)
    assert not runs(*watched)


def test_attributes_that_are_tensors_or_differ_are_not_equal():
    layers = [nn.Linear(4, 4) for _ in range(9)]
    for layer in layers:
        layer.scale = torch.ones(1)
    assert not runs(*layers)
    assert not runs(*[nn.Dropout(number / 10) for number in range(9)])


def test_partial_functions_are_equal_by_what_they_do():
    layers = [nn.Linear(4, 4) for _ in range(9)]
    for layer in layers:
        layer.act = partial(functional.gelu, approximate="tanh")
    assert len(runs(*layers)) == 1
    for number, layer in enumerate(layers):
        layer.act = partial(functional.leaky_relu, negative_slope=number / 10)
    assert not runs(*layers)


def test_a_plan_is_followed():
    model = nn.Sequential(*[nn.ReLU() for _ in range(20)])
    assert not runs_of(model, {"": None})
    (run,) = runs_of(model, {"": Plan(period=2, num_first=5, num_last=2)})
    assert (run.num_units, list(run.left_out), run.template) == (10, [5, 6, 7], 3)
    assert run.steps(4, 8) == 1  # what is left out is not there
    assert Plan().wider == Plan(num_first=5, num_last=2)
    assert Plan().wider.wider is None
