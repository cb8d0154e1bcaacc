"""Forward and backward passes: exactly the gradients that autograd needs, and recomputation apart."""

import pytest
import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from flop_rows.nets import ATTENTION, BLOCK, FORWARD, LAYER, Block, LoRA, T, d, mlp, tokens
from torchledger.ledger import HARDWARE_FLOPS
from torchledger.tracer import trace

B, D, K = 32, 64, 10
UP = 8 * LAYER // 2  # one of the two products of the hidden layer


def _mean(y, _):
    return y.float().mean()


def _gradients(ledger):
    """FLOPs by whose gradient it is, of contractions in the backward pass."""
    products = ledger.where(phase="backward", kind={"matmul", "convolution", "attention"})
    return {of: part.flops for of, part in products.by("gradient_of").items()}


@pytest.mark.parametrize(("needs", "flops"), [(False, 647_168), (True, 909_312)])
def test_mlp(needs, flops):
    """4·B·D·(D + K) + 2·B·D·K; the input's own gradient is 2·B·D·D more."""
    ledger = trace(mlp(), torch.zeros(B, D, requires_grad=needs), loss=_mean).ledger
    expected = 4 * B * D * (D + K) + 2 * B * D * K + (2 * B * D * D if needs else 0)
    assert ledger.flops == expected == flops


def test_mlp_with_a_frozen_layer():
    """Behind the first layer nothing needs a gradient: the last weight's is all there is."""
    model = mlp()
    model[0].requires_grad_(requires_grad=False)
    ledger = trace(model, torch.zeros(B, D), loss=_mean).ledger
    assert ledger.flops == 2 * B * D * (D + K) + 2 * B * D * K == 344_064
    assert _gradients(ledger) == {"weight": 2 * B * D * K}


def test_two_lora_layers():
    """Forward both layers; back through the second one's base, and to and through the corrections."""
    r = 4
    ledger = trace(nn.Sequential(LoRA(r), LoRA(r)), torch.zeros(T, d), loss=_mean).ledger
    base, thin = 2 * T * d * d, 2 * T * d * r
    second = base + 4 * thin  # x, and of a and b the weights and the inputs
    first = 3 * thin  # no x
    assert ledger.flops == 2 * (base + 2 * thin) + second + first == 1_933_312
    assert _gradients(ledger) == {"input": base + 2 * thin + thin, "weight": 4 * thin}


@pytest.mark.parametrize("eager", [False, True])
def test_gpt2_block(eager):
    """Three times the forward pass: the norm before the first layer needs that layer's input gradient."""
    ledger = trace(Block(eager=eager), tokens(), loss=_mean).ledger
    assert ledger.flops == 3 * BLOCK == 20_447_232
    assert _gradients(ledger) == {"input": BLOCK + ATTENTION, "weight": BLOCK - ATTENTION}


def test_grouped_query_attention():
    """No gradient of x is needed: of q, k and v the weights only; of o both; of attention four products."""
    make, batch, forward = FORWARD["GQA"]
    ledger = trace(make(), batch(), loss=_mean).ledger
    assert ledger.flops == forward + 2 * LAYER + 2 * LAYER + 2 * ATTENTION == 5_242_880


def test_attention_counts_the_gradients_that_are_needed():
    """Only queries are trained: dP and dQ, two products of the four; the kernel runs all of them and S again."""

    class Queries(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(d, d)

        def forward(self, x):
            heads = x.view(2, 32, 4, 16).transpose(1, 2)
            q = self.q(x).view(2, 32, 4, 16).transpose(1, 2)
            return nn.functional.scaled_dot_product_attention(q, heads, heads)

    ledger = trace(Queries(), tokens(), loss=_mean).ledger.where(phase="backward", kind="attention")
    assert ledger.flops == ATTENTION
    assert ledger.under(HARDWARE_FLOPS).flops == 2 * ATTENTION + ATTENTION // 2
    with sdpa_kernel(SDPBackend.MATH):
        assert trace(Queries(), tokens(), loss=_mean).ledger.where(phase="backward").flops == ATTENTION + LAYER


def test_conv_net():
    """Three times the forward pass less the images' gradient, 2·2·256·9·3·16."""
    make, batch, forward = FORWARD["conv net"]
    ledger = trace(make(), batch(), loss=_mean).ledger
    first = 2 * 2 * 256 * 9 * 3 * 16
    assert ledger.flops == 3 * forward - first == 6_046_656
    assert _gradients(ledger) == {"input": forward - first, "weight": forward}


@pytest.mark.parametrize("groups", [1, 2, 4, 16])
@pytest.mark.parametrize("transposed", [False, True])
def test_grouped_convolution(groups, transposed):
    """Input and weight gradient each cost what the forward pass does, however many groups there are."""
    layer = (nn.ConvTranspose2d if transposed else nn.Conv2d)(16, 16, 3, padding=1, groups=groups)
    x = torch.zeros(2, 16, 16, 16, requires_grad=True)
    ledger = trace(layer, x, loss=_mean).ledger
    one = 2 * 2 * 256 * 9 * 16 * 16 // groups
    assert _gradients(ledger) == {"input": one, "weight": one}
    assert ledger.flops == 3 * one
    if groups == 16:
        assert ledger.flops == 442_368


def test_lstm():
    """Weights 3,670,016; the second layer's input 2·32·256·64; the states of 15 steps of 16, in both layers."""
    make, batch, forward = FORWARD["LSTM"]
    ledger = trace(make(), batch(), loss=_mean).ledger
    state = 2 * (2 * 2 * 15 * 256 * 64)
    assert ledger.flops == forward + forward + 2 * 32 * 256 * 64 + state == 10_354_688
    assert _gradients(ledger) == {"weight": forward, "input": 2 * 32 * 256 * 64 + state}
    ran = ledger.under(HARDWARE_FLOPS).flops
    assert ran == ledger.flops + 2 * 32 * 256 * 32 + 2 * (2 * 2 * 256 * 64), "oneDNN makes x's and h0's gradient too"


@pytest.mark.parametrize(("reentrant", "math", "executed"), [
    (False, True, 50_331_648),
    (True, True, 54_525_952),
    (False, False, 50_855_936),
    (True, False, 55_050_240),
])  # fmt: skip
def test_two_checkpointed_blocks(reentrant, math, executed):
    """Model FLOPs know nothing of it. Executed: forward again, less the last product where it stops early.

    A fused kernel makes the scores once more in its backward, half of attention's forward FLOPs.
    """

    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(), Block()])

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x

    with sdpa_kernel(SDPBackend.MATH if math else SDPBackend.FLASH_ATTENTION):
        ledger = trace(Pair(), tokens().requires_grad_(), loss=_mean).ledger
    again = 2 * BLOCK - (0 if reentrant else 2 * UP)
    fifth = 0 if math else 2 * ATTENTION // 2
    assert ledger.flops == 2 * 3 * BLOCK == 40_894_464
    assert ledger.under(HARDWARE_FLOPS).flops == 6 * BLOCK + again + fifth == executed
    rows = {module: part.flops for module, part in ledger.where(kind="matmul").by("module").items()}
    for block in "01":
        down, up = rows[f"blocks.{block}.down"], rows[f"blocks.{block}.up"]
        assert down == up == 3 * UP, "each layer has its forward and both gradients"
    recomputed = ledger.where(phase="recompute").under(HARDWARE_FLOPS)
    assert recomputed.flops == again


def test_muon_on_one_matrix():
    """Five Newton-Schulz steps of three products of 64 x 64."""
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.Muon(model.parameters())
    ledger = trace(model, torch.zeros(8, 64), loss=_mean, optimizer=optimizer).ledger
    products = ledger.where(phase="optimizer", kind="linalg")  # the update's own algebra, no model FLOPs
    assert products.total.flops_full == 5 * 3 * 2 * 64**3 == 7_864_320
    assert ledger.where(phase="optimizer").flops == 0
