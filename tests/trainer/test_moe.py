import math
from dataclasses import replace

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.spec import MlpSpec, MoeSpec
from torchledger.trainer.moe import Moe, Router

SPEC = MoeSpec(num_experts=5, experts_per_token=2, intermediate_size=6)


def filled(module, seed=0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.normal_(generator=generator)
    return module


def by_tokens(moe, x):
    """What the mixture computes, one token at a time."""
    flat = x.flatten(0, 1)
    weights, chosen, _ = moe.router(flat)
    rows = []
    for i, token in enumerate(flat):
        row = sum(w * moe.experts[j](token) for w, j in zip(weights[i], chosen[i].tolist(), strict=True))
        if moe.shared is not None:
            row = row + moe.shared(token) * (torch.sigmoid(moe.shared_gate(token)) if moe.shared_gate else 1)
        rows.append(row)
    return torch.stack(rows).reshape(x.shape)


@pytest.mark.parametrize(
    "shared", [{}, {"shared_intermediate_size": 4}, {"shared_intermediate_size": 4, "shared_gate": True}]
)
def test_sorted_by_expert_is_the_same_as_token_by_token(shared):
    """Sorting token copies by expert changes nothing but the order of work, also for experts that nobody chose."""
    moe = filled(Moe(8, MlpSpec(6), replace(SPEC, **shared)))
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(moe(x), by_tokens(moe, x))


def test_router_takes_the_best_and_normalizes():
    """The weights are the largest softmax scores, scaled to sum to one where the spec says so."""
    x = torch.randn(7, 8, generator=torch.Generator().manual_seed(1))
    for normalize in (True, False):
        router = filled(Router(8, replace(SPEC, normalize_weights=normalize)))
        weights, chosen, _ = router(x)
        best, order = (x @ router.weight.T).softmax(-1).sort(dim=-1, descending=True)
        assert chosen.tolist() == order[:, :2].tolist()
        expected = best[:, :2] / (best[:, :2].sum(-1, keepdim=True) if normalize else 1)
        torch.testing.assert_close(weights, expected)


def test_router_bias_chooses_but_does_not_weigh():
    """A large bias draws every token to its expert, whose weight is still its own sigmoid score; it is no parameter."""
    router = filled(Router(8, replace(SPEC, router_bias=True, scoring="sigmoid", normalize_weights=False)))
    router.bias[3] = 100.0
    x = torch.randn(7, 8, generator=torch.Generator().manual_seed(1))
    weights, chosen, _ = router(x)
    assert (chosen[:, 0] == 3).all()
    torch.testing.assert_close(weights[:, 0], torch.sigmoid(x @ router.weight[3]))
    assert [name for name, _ in router.named_parameters()] == ["weight"]


def test_without_values_the_load_is_even():
    """On fake tensors 7 tokens of 2 copies over 5 experts are 3, 3, 3, 3 and 2: all 14 copies."""
    with FakeTensorMode():
        moe = Moe(8, MlpSpec(6), SPEC)
        sizes = []
        for expert in moe.experts:
            expert.register_forward_pre_hook(lambda _m, inputs: sizes.append(len(inputs[0])))
        moe(torch.zeros(1, 7, 8))
    assert sizes == [3, 3, 3, 3, 2]


def test_gradients_repeat_bit_for_bit():
    """Two backward passes give the same bits, on several threads too."""
    x = torch.randn(4, 16, 8, generator=torch.Generator().manual_seed(1))
    gradients = []
    for _ in range(2):
        moe = filled(Moe(8, MlpSpec(6), SPEC))
        inputs = x.clone().requires_grad_()
        moe(inputs).square().sum().backward()
        gradients.append([inputs.grad, *(p.grad for p in moe.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))


@pytest.mark.parametrize("factor", [0.3, 1.0, 10.0])
def test_within_capacity_the_first_copies_count_and_the_rest_add_nothing(factor):
    """Each expert takes ceil(factor · 12 · 2 / 5) copies in order of the tokens; with room for all none is dropped."""
    moe = filled(Moe(8, MlpSpec(6), replace(SPEC, capacity_factor=factor)))
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(1))
    capacity, taken = math.ceil(factor * 12 * 2 / 5), [0] * 5
    weights, chosen, _ = moe.router(x.flatten(0, 1))
    rows = []
    for i, token in enumerate(x.flatten(0, 1)):
        row = torch.zeros(8)
        for weight, expert in zip(weights[i], chosen[i].tolist(), strict=True):
            taken[expert] += 1
            if taken[expert] <= capacity:
                row = row + weight * moe.experts[expert](token)
        rows.append(row)
    torch.testing.assert_close(moe(x), torch.stack(rows).reshape(x.shape))


@pytest.mark.parametrize("scoring", ["softmax", "sigmoid"])
def test_unevenness_is_one_where_all_experts_are_equal_and_their_number_where_one_takes_all(scoring):
    """E·Σ f·P: E · E · 1/E · 1/E = 1, and E · 1 · 1 = E."""
    router = Router(8, MoeSpec(4, 1, 6, scoring=scoring))
    router.balances = True
    x = torch.eye(8)[:4]
    with torch.no_grad():
        router.weight.copy_(torch.eye(8)[:4] * 1e-4)  # each token prefers another expert, barely
    assert router(x)[2].item() == pytest.approx(1, abs=1e-4)
    with torch.no_grad():
        router.weight.fill_(-100.0)
        router.weight[2] = 100.0
    assert router(x)[2].item() == pytest.approx(4)
    assert router.eval()(x)[2] is None
