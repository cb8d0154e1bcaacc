"""Loops over experts, where a traced step has no router's values."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger.tracer import trace
from torchledger.tracer.errors import TraceError

TOKENS, D, EXPERTS, CHOSEN = 10, 6, 4, 2


class Experts(nn.Module):
    """A loop over the experts that were chosen, as transformers has it: classes, chosen and tokens in one mask."""

    def __init__(self, *, by_value):
        super().__init__()
        self.num_experts, self.by_value = EXPERTS, by_value
        self.weight = nn.Parameter(torch.zeros(EXPERTS, D, D))

    def forward(self, x, chosen):
        """Each token through the experts that were chosen for it."""
        mask = functional.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        hit = torch.greater(mask.sum((-1, -2)), 0).nonzero() if self.by_value else [[e] for e in range(EXPERTS)]
        y = torch.zeros_like(x)
        for expert in hit:
            _, token = torch.where(mask[expert[0]])
            y.index_add_(0, token, x[token] @ self.weight[expert[0]])
        return y


class Mixture(nn.Module):
    """A router and its experts."""

    def __init__(self, *, by_value=True):
        super().__init__()
        self.router, self.experts = nn.Linear(D, EXPERTS, bias=False), Experts(by_value=by_value)

    def forward(self, x):
        """Two experts for each token."""
        return self.experts(x, self.router(x).topk(CHOSEN).indices)


def _seen(by_value=True, **options):
    return trace(Mixture(by_value=by_value), torch.zeros(TOKENS, D), loss=lambda y, _: y.mean(), **options)


@pytest.mark.parametrize("by_value", [True, False])
def test_tokens_are_shared_out_evenly(by_value):
    """20 choices among 4 experts: 5 rows of each; forward, and the weight's gradient. It is said."""
    seen = _seen(by_value)
    forward = seen.ledger.where(phase="forward", module="experts", kind="matmul")
    assert sorted(dict(line.shape)["m"] for line in forward for _ in range(line.times)) == [5, 5, 5, 5]
    experts = seen.ledger.where(module="experts")
    assert experts.flops == 2 * (2 * TOKENS * CHOSEN * D * D)
    assert [text for text in seen.assumptions if "experts" in text] == [
        "a loop over 4 experts: each gets an equal share of the tokens (which ones is data)"
    ]


def test_given_counts():
    """One expert may get none; the total is what it was."""
    seen = _seen(expert_tokens=[12, 0, 7, 1])
    forward = seen.ledger.where(phase="forward", module="experts", kind="matmul")
    assert sorted(dict(line.shape)["m"] for line in forward) == [0, 1, 7, 12]
    assert seen.ledger.where(module="experts").flops == 2 * (2 * TOKENS * CHOSEN * D * D)
    assert "a loop over 4 experts: tokens by the given counts" in seen.assumptions


@pytest.mark.parametrize("counts", [[20], [5, 5, 5, 4], [5, 5, 5, 6]])
def test_counts_of_another_layer_are_refused(counts):
    """The message names the module, what was given and what there is."""
    with pytest.raises(TraceError, match="the layer has 20 on 4 in module `experts`"):
        _seen(expert_tokens=counts)


def test_any_other_mask_still_needs_its_values():
    """Outside of experts nothing is assumed of a mask."""

    class Positive(nn.Module):
        def forward(self, x):
            return x[x > 0]

    with pytest.raises(TraceError, match="nonzero"):
        trace(Positive(), torch.zeros(TOKENS, requires_grad=True), loss=lambda y, _: y.sum())
