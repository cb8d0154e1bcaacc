from dataclasses import replace

import pytest
import torch

from torchledger.meter import allocations
from torchledger.spec import Recipe
from torchledger.trainer.init import initialize
from torchledger.trainer.linear import Linear
from torchledger.trainer.model import build
from torchledger.trainer.narrowing import narrow, narrow_products


@pytest.fixture
def model(tiny):
    model = build(replace(tiny, tied_embeddings=True), attention="math")
    initialize(model, "fan_in", 0)
    return model


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_what_is_stored_in_fp32_stays_as_it_is(model, precision):
    before = list(model.parameters())
    assert narrow(model, precision) == {}
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("precision", ["bf16-pure", "bf16-moments", "bf16-master"])
def test_parameters_are_rounded_and_buffers_are_not(model, precision):
    """Rotary tables stay FP32: a position's angle in 8 bits would move tokens. A tied head stays tied."""
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    narrow(model, precision)
    assert all(torch.equal(p, before[name].bfloat16()) for name, p in model.named_parameters())
    assert model.head.weight is model.embedding.weight
    assert {buffer.dtype for buffer in model.buffers()} == {torch.float32}


def test_a_master_copy_has_all_digits_of_the_first_values(model):
    """One for each parameter that takes gradients, equal to what was drawn; none for what is frozen."""
    model.final_norm.weight.requires_grad_(False)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    masters = narrow(model, "bf16-master")
    named = dict(model.named_parameters())
    assert set(masters) == {p for name, p in named.items() if name != "final_norm.weight"}
    assert all(torch.equal(masters[p], before[name]) for name, p in named.items() if p in masters)


def test_the_model_is_never_there_twice(model):
    """Each FP32 tensor goes before the next is copied: less than 4 bytes a parameter and the largest copy at once."""

    def made():
        built = build(replace(model.spec, num_layers=8), attention="math")
        narrow(built, "bf16-pure")
        return built

    seen = allocations(made)
    sizes = [p.numel() for p in seen.result.parameters()]
    buffer_bytes = sum(buffer.numel() * 4 for buffer in seen.result.buffers())
    assert seen.peak_bytes - buffer_bytes <= 4 * sum(sizes) + 2 * max(sizes) < 6 * sum(sizes)


def test_precisions_are_those_of_a_recipe():
    assert Recipe(precision="bf16-pure").precision == "bf16-pure"


def test_only_precisions_with_narrow_products_have_them():
    """FP8 is of `fp8` alone: nothing of a model in 16 bit is cast further."""
    for precision, expected in (("bf16-master", 0), ("bf16", 0), ("fp8", 1)):
        layers = torch.nn.ModuleDict({"mlp": Linear(32, 48), "head": Linear(32, 48), "attention": Linear(32, 24)})
        narrow_products(layers, precision)
        assert sum(each.is_narrow for each in layers.values()) == expected
