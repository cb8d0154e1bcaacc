"""The lecture's linear nets: its arithmetic, our trace and torch's own counter give the same numbers."""

import itertools

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from torchledger.ledger import Convention
from torchledger.tracer import trace

FLOAT_BYTES = 4


def _mean(output, _batch):
    return output.mean()


def _two_layers(B, D, K, *, input_gradient):
    """Linear(D, D), then Linear(D, K), on x of B rows."""
    model = nn.Sequential(nn.Linear(D, D, bias=False), nn.Linear(D, K, bias=False))
    return model, torch.zeros(B, D, requires_grad=input_gradient)


def _torch_counts(model, x):
    """Forward and backward FLOPs by torch's own counter, on the real net."""
    with FlopCounterMode(display=False) as forward:
        loss = model(x).mean()
    with FlopCounterMode(display=False) as backward:
        loss.backward()
    return forward.get_total_flops(), backward.get_total_flops()


@pytest.mark.parametrize(("B", "D", "K"), [(32, 64, 10), (3, 5, 7), (1, 16, 1)])
@pytest.mark.parametrize("input_gradient", [True, False])
def test_two_layer_net(B, D, K, input_gradient):
    """Forward 2·B·D·(D + K); backward 4·B·D·(D + K), without x's gradient 2·B·D·D less."""
    model, x = _two_layers(B, D, K, input_gradient=input_gradient)
    ledger = trace(model, x, loss=_mean).ledger
    forward, backward = ledger.where(phase="forward").flops, ledger.where(phase="backward").flops
    assert forward == 2 * B * D * (D + K)
    assert backward == (4 * B * D * (D + K) if input_gradient else 4 * B * D * K + 2 * B * D * D)
    assert (forward, backward) == _torch_counts(model, x)


def test_two_layer_net_line_by_line():
    """Each layer has a weight gradient; the second layer's input gradient is there, the first one's only if asked."""
    B, D, K = 8, 4, 2
    for input_gradient in (True, False):
        model, x = _two_layers(B, D, K, input_gradient=input_gradient)
        ledger = trace(model, x, loss=_mean).ledger.where(kind="matmul", phase="backward")
        flops = {key: part.flops for key, part in ledger.by("module", "gradient_of").items()}
        expected = {("1", "weight"): 2 * B * D * K, ("1", "input"): 2 * B * D * K, ("0", "weight"): 2 * B * D * D}
        if input_gradient:
            expected["0", "input"] = 2 * B * D * D
        assert flops == expected


@pytest.mark.parametrize(("L", "B", "D"), [(4, 16, 32), (1, 2, 3), (7, 5, 8)])
def test_deep_linear_net(L, B, D):
    """L layers of D x D: L·D² parameters and B·D·L·bytes of activations kept; the loss itself is what that leaves out.

    The formula is right for the L outputs, of which L - 1 are kept for the next layer's weight gradient and the last
    one because the caller holds it. Left out: the loss (one number), and x, which is input and not activation.
    """
    model = nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(L)))
    x = torch.zeros(B, D)
    seen = trace(model, x, loss=_mean)
    assert seen.num_parameters == L * D**2
    kept = [b for b in seen.timeline.blocks if b.part == "activations" and b.call >= seen.first_call]
    outputs = [block for block in kept if block.op == "aten.mm.default"]
    assert sum(block.num_bytes for block in outputs) == B * D * L * FLOAT_BYTES
    assert {block.module for block in outputs} == {str(layer) for layer in range(L)}
    left_out = {block.op: block.num_bytes for block in kept if block not in outputs}
    assert left_out == {"aten.mean.default": FLOAT_BYTES}
    inputs = [block.num_bytes for block in seen.timeline.blocks if block.part == "inputs"]
    assert inputs == [B * D * FLOAT_BYTES]
    assert seen.kept_bytes == B * D * L * FLOAT_BYTES + FLOAT_BYTES == seen.ledger.total.bytes_kept


def test_deep_linear_net_flops():
    """Forward 2·B·L·D²; backward twice that less the first layer's input gradient."""
    L, B, D = 5, 6, 7
    model = nn.Sequential(*(nn.Linear(D, D, bias=False) for _ in range(L)))
    ledger = trace(model, torch.zeros(B, D), loss=_mean).ledger
    assert ledger.where(phase="forward").flops == 2 * B * L * D**2
    assert ledger.where(phase="backward").flops == 4 * B * L * D**2 - 2 * B * D**2
    assert ledger.flops == sum(_torch_counts(model, torch.zeros(B, D)))


@pytest.mark.parametrize(("frozen", "input_gradient"), [*itertools.product((True, False), repeat=2)])
def test_a_frozen_layer_has_no_weight_gradient(frozen, input_gradient):
    """Freezing the first layer takes its weight gradient away, and with no x gradient its whole backward."""
    B, D, K = 32, 64, 10
    model, x = _two_layers(B, D, K, input_gradient=input_gradient)
    model[0].weight.requires_grad_(requires_grad=not frozen)
    ledger = trace(model, x, loss=_mean).ledger
    first = (0 if frozen else 2 * B * D * D) + (2 * B * D * D if input_gradient else 0)
    # The second layer's input gradient is there only if something before it needs one.
    second = 2 * B * D * K + (2 * B * D * K if input_gradient or not frozen else 0)
    assert ledger.where(phase="backward").flops == first + second == _torch_counts(model, x)[1]


def test_conventions_only_choose_what_is_read():
    """All operations count the mean as well: B·K - 1 adds forward, and its gradient is a division, not a FLOP."""
    B, D, K = 8, 4, 2
    model, x = _two_layers(B, D, K, input_gradient=False)
    ledger = trace(model, x, loss=_mean).ledger.where(phase="forward")
    every = ledger.under(Convention(operations="all"))
    assert every.flops - ledger.flops == B * K - 1
