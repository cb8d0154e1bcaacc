"""The parameters that the formula names are those of the module that the trainer builds."""

import pytest

from torchledger.formula.parameters import parameters
from torchledger.spec import presets

torch = pytest.importorskip("torch")
from torchledger.trainer.model import build  # noqa: E402 - needs torch

#: A full build of these makes tens of thousands of experts; the two smallest mixtures stand for them.
TOO_MANY_EXPERTS = {"deepseek-v2", "deepseek-v3", "qwen3-30b-a3b"}


@pytest.mark.parametrize("name", sorted(set(presets.names()) - TOO_MANY_EXPERTS))
def test_the_formula_names_the_parameters_of_the_module(name):
    """Names, shapes and order are equal, for every preset."""
    spec = presets.get(name)
    with torch.device("meta"):
        module = build(spec, attention="math")
    rows = [each for each in parameters(spec, expand=True) if each.tied_to is None and each.trainable]
    assert [(each.name, each.shape) for each in rows] == [(n, tuple(p.shape)) for n, p in module.named_parameters()]
