import math
from dataclasses import replace

import pytest
import torch

from torchledger.trainer.activation_scale import activation_scales, unusual_scale
from torchledger.trainer.init import initialize
from torchledger.trainer.model import build


def drawn(spec, initialization="fan_in"):
    model = build(spec, attention="math")
    initialize(model, initialization, 0)
    return model


def ids(vocab=4096):
    return torch.randint(0, vocab, (2, 24), generator=torch.Generator().manual_seed(0))


@pytest.fixture
def deep(tiny):
    return replace(tiny, num_layers=8, vocab_size=4096)


def test_sizes_by_depth_are_those_of_the_tensors(tiny):
    """An untied embedding of std 1 is of size 0.99; a layer that adds nothing gives on what it read."""
    model = drawn(tiny)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.output.weight.zero_()
            layer.mlp.down.weight.zero_()
    scales = activation_scales(model, ids(257))
    assert [scale.name for scale in scales] == ["embedding", "layers.0", "layers.1", "head"]
    assert scales[0].rms == scales[1].rms == scales[2].rms == pytest.approx(0.99, abs=0.03)


@pytest.mark.parametrize("initialization", ["fan_in", "gpt2", "xavier", "kaiming", "mup"])
def test_no_warning_for_any_initialization(any_spec, initialization):
    """Every way to draw values keeps every architecture's activations within bounds, twelve layers deep."""
    if initialization == "gpt2" and any_spec.embedding_size:
        pytest.skip("0.02·0.02·sqrt(16) = 0.0016 is below the norm's epsilon, which is what the warning is for")
    model = drawn(replace(any_spec, num_layers=12, vocab_size=4096), initialization)
    assert unusual_scale(activation_scales(model, ids()), model) == ""


@pytest.mark.parametrize(
    ("name", "factor", "said"),
    [
        ("layers.3.mlp.down.weight", 30.0, "layers.3: activations grow"),
        ("layers.5.attention.output.weight", math.nan, "layers.5 gives no finite numbers"),
        ("head.weight", 100.0, "head: logits have a size of"),
        ("embedding.weight", 1e-4, "embedding: activations have a size of"),
    ],
)
def test_a_warning_names_the_layer_and_the_matrix(deep, name, factor, said):
    """One matrix of a wrong size: the warning names the layer at which it shows, and the matrix."""
    model = drawn(deep)
    with torch.no_grad():
        dict(model.named_parameters())[name].mul_(factor)
    told = unusual_scale(activation_scales(model, ids()), model)
    assert told.startswith(said)
    assert name in told


def test_sizes_are_finite_or_told_first(deep):
    """A stream that doubles with every layer is told at the first layer beyond three times sqrt(1 + 2·(l + 1))."""
    model = drawn(deep)
    with torch.no_grad():
        for layer in model.layers:
            layer.attention.output.weight.mul_(40)
    scales = activation_scales(model, ids())
    first = next(s.name for i, s in enumerate(scales) if i and s.rms > 3 * math.sqrt(scales[0].rms ** 2 + 2 * i))
    assert unusual_scale(scales, model).startswith(f"{first}: ")


def test_looking_leaves_nothing_behind(any_spec):
    """No hook, mode, gradient or random number is changed by looking."""
    model = drawn(any_spec).train()
    before = torch.get_rng_state()
    activation_scales(model, ids(257))
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    assert all(not module._forward_hooks and not module._forward_pre_hooks for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
