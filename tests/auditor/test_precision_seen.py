import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torchledger.auditor.precision_census import count
from torchledger.auditor.precision_seen import Noise, Seen, watched


class Twice(nn.Module):
    """A layer that is called twice, under a module that computes nothing of its own."""

    def __init__(self, recompute=None):
        super().__init__()
        self.layer, self.hands_on, self.recompute = nn.Linear(4, 4), nn.Identity(), recompute

    def forward(self, x):
        """Both calls, one after the other."""
        if self.recompute is None:
            return self.layer(self.hands_on(self.layer(x)))
        return self.layer(checkpoint(self.layer, x, use_reentrant=self.recompute))


def test_outputs_of_all_calls_of_a_layer_are_counted_and_what_is_handed_on_is_not():
    """A layer called twice on 20 rows makes 2 · 20 · 4 numbers, and as many gradients; an identity makes none."""
    torch.manual_seed(0)
    model, seen = Twice(), Seen()
    with watched(model, seen):
        loss = model(torch.randn(20, 4)).square().sum()
    loss.backward()
    assert {name: census.elements for name, census in seen.activations.items()} == {"layer": 160}
    assert seen.gradients["layer"].elements == 160
    assert seen.inside == []


def test_gradients_are_those_that_autograd_gives():
    """The census of an output's gradient is that of the gradient kept at it."""
    torch.manual_seed(0)
    model, seen, kept = nn.Sequential(nn.Linear(4, 3)), Seen(), []

    def keep(_module, _inputs, output):
        output.register_hook(kept.append)

    model[0].register_forward_hook(keep)
    with watched(model, seen):
        loss = model(torch.randn(20, 4)).exp().sum()
    loss.backward()
    assert seen.gradients["0"] == count(kept[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_what_is_computed_again_in_the_backward_pass_is_counted_once(reentrant):
    """A checkpointed layer runs again when gradients are computed: its outputs have been counted by then."""
    torch.manual_seed(0)
    model, seen = Twice(reentrant), Seen()
    with watched(model, seen):
        loss = model(torch.randn(20, 4, requires_grad=True)).square().sum()
    loss.backward()
    assert seen.activations["layer"].elements == 160


def test_noise_is_the_rounding_error_over_what_varies():
    """Numbers 1,000 + u in FP16, whose steps are 1/2 there: error 0.5/√12 over the deviation of u, 1: 0.144."""
    torch.manual_seed(0)
    model, seen = nn.Sequential(nn.Identity(), nn.Linear(8, 8)), Seen()
    nn.init.eye_(model[1].weight)
    nn.init.constant_(model[1].bias, 1000.0)
    with watched(model, seen):
        model(torch.randn(4096, 8))
    assert seen.noise["1"].share("FP16") == pytest.approx(0.5 / 12**0.5, rel=0.02)
    assert seen.noise["1"].share("BF16") > 0.9  # steps of 4: almost all become 1,000


def test_nothing_that_varies_has_no_noise():
    """A constant output is unknown, not 0: there is nothing that rounding could drown."""
    assert Noise().share("BF16") is None


def test_a_module_that_raises_leaves_no_hook_behind():
    """The error comes through and the model is as it was."""
    model, seen = nn.Sequential(nn.Linear(4, 4)), Seen()
    with pytest.raises(RuntimeError), watched(model, seen):
        model(torch.randn(2, 5))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert seen.inside == []
