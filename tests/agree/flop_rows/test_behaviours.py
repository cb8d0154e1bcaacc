"""What a FLOP counter has to live through: derivatives of derivatives, control flow, modules under two names."""

import pytest
import torch
from torch import nn
from torch._higher_order_ops import cond, scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from flop_rows.nets import Block, d, tokens
from torchledger.ledger import HARDWARE_FLOPS, Convention
from torchledger.tracer import Recorder, trace, trace_step

N = 64
MM = 2 * N**3


def _square(*, grad=False):
    return torch.zeros(N, N, requires_grad=grad)


def test_gradient_of_a_leaf():
    """autograd.grad instead of backward: two gradients of one product."""
    x, w = _square(grad=True), _square(grad=True)
    with Recorder() as recorder:
        torch.autograd.grad((x @ w).sum(), [x, w])
    assert recorder.trace().ledger.flops == MM + 2 * MM


def test_gradient_penalty():
    """The gradient's own norm is differentiated: forward, x's gradient, and the weight's of both products.

    y = x W, g = dL/dx = 1 Wᵀ; the penalty |g|² needs d/dW of 1 Wᵀ, one product; y.sum() needs xᵀ 1, another.
    """

    def build():
        layer = nn.Linear(N, N, bias=False)

        def step():
            x = torch.zeros(N, N, requires_grad=True)
            y = layer(x).sum()
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            (y + g.pow(2).sum()).backward(inputs=list(layer.parameters()))

        return step

    assert trace_step(build).ledger.flops == 4 * MM


def test_hessian_vector_product():
    """Of f(W) = |x W|²: forward 1, gradient 1 (x needs none), and the gradient's gradient against v.

    dW = 2 xᵀ(x W); its product with v differentiates xᵀ and x W: two products more.
    """

    def build():
        w, x, v = _square(grad=True), _square(), _square()

        def step():
            y = (x @ w).pow(2).sum()
            (g,) = torch.autograd.grad(y, w, create_graph=True)
            torch.autograd.grad((g * v).sum(), w)

        return step

    assert trace_step(build).ledger.flops == MM + MM + 2 * MM


def test_one_module_under_two_names():
    """Each call stands under the name that it was called by, or the first where both would do."""

    class Twins(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Sequential(nn.Linear(d, d))
            self.two = nn.Sequential(self.one[0])

        def forward(self, x):
            return self.two(self.one(x))

    ledger = trace(Twins(), torch.zeros(32, d), loss=lambda y, _: y.mean()).ledger.where(phase="forward")
    rows = {module: part.flops for module, part in ledger.where(kind="matmul").by("module").items()}
    assert rows == {"one.0": 2 * 32 * d * d, "two.0": 2 * 32 * d * d}


@pytest.mark.filterwarnings("ignore")  # torch's own, about running it without its compiler
class TestControlFlow:
    """Branches and loops of torch's own."""

    def test_a_loop_of_five(self, look):
        """Its counter is known: five products."""
        x, w = _square(), _square()
        run = lambda: while_loop(lambda i, _: i < 5, lambda i, x: (i + 1, x @ w), (torch.tensor(0), x.clone()))  # noqa: E731
        assert look(run).ledger.flops == 5 * MM

    def test_scan_with_and_without_gradients(self, look):
        """Eight steps c W + x; with gradients twice as many products again, of a weight that the body reaches for."""

        def run(*, grad):
            xs, init, w = torch.zeros(8, N, N), _square(grad=grad), _square(grad=grad)
            carry, _ = scan(lambda c, x: (c @ w + x, c.clone()), init, xs)
            if grad:
                carry.sum().backward()

        assert look(lambda: run(grad=False)).ledger.flops == 8 * MM
        assert look(lambda: run(grad=True)).ledger.flops == 3 * 8 * MM

    def test_map(self, look):
        """One product a row."""
        run = lambda: map_rows(lambda x, w: x @ w, torch.zeros(8, N, N), _square())  # noqa: E731
        assert look(run).ledger.flops == 8 * MM

    def test_a_product_and_two_branches(self, look):
        """A product, then twice the costlier of two branches: 1 + 2 + 2 products of (32, 64) by (64, 64)."""

        def run():
            x, w = torch.rand(32, N), _square()  # zeros would be known, and so would the branch
            x = x @ w
            for _ in range(2):
                x = cond(x.sum() > 0, lambda x: (x @ w) @ w, lambda x: x @ w, (x,))

        seen = look(run)
        assert seen.ledger.flops == (1 + 2 + 2) * 2 * 32 * N * N == 1_310_720
        assert any("branch" in assumption for assumption in seen.assumptions)

    def test_a_branch_that_is_known(self, look):
        """Nothing is assumed of a constant; gradients follow the branch."""

        def run():
            x, w = _square(grad=True), _square(grad=True)
            cond(torch.tensor(False), lambda x: (x @ w) @ w, lambda x: x @ w, (x.clone(),)).sum().backward()

        seen = look(run)
        assert seen.ledger.flops == 3 * MM
        assert seen.assumptions == ()

    def test_flex_attention_under_a_causal_mask(self, look):
        """Full: every pair; exact: the triangle; executed: blocks of 128 that have a pair, three of four."""
        B, H, S, h = 2, 4, 256, 16

        def run():
            q = torch.zeros(B, H, S, h)
            flex_attention(q, q, q, block_mask=create_block_mask(lambda _b, _h, q, k: q >= k, None, None, S, S, "cpu"))

        ledger = look(run).ledger
        full = 2 * 2 * B * H * S * S * h
        assert ledger.flops == full
        assert ledger.under(Convention(attention="exact")).flops == full * (S * (S + 1) // 2) // S**2
        assert ledger.under(HARDWARE_FLOPS).flops == full * 3 // 4

    def test_flex_attention_under_a_mask_of_documents(self, look):
        """Four documents of 64 tokens, end to end, by a tensor that the mask reaches for: a quarter of the pairs."""
        S, document = 256, torch.arange(256) // 64

        def run():
            q = torch.zeros(1, 1, S, 16)
            mask = create_block_mask(lambda _b, _h, q, k: document[q] == document[k], None, None, S, S, "cpu")
            flex_attention(q, q, q, block_mask=mask)

        ledger = look(run).ledger
        assert ledger.under(Convention(attention="exact")).flops == ledger.flops // 4


@pytest.mark.filterwarnings("ignore")  # torch's own, about nested tensors
def test_a_layer_on_sequences_of_uneven_length():
    """Three and five rows end to end: eight rows, forward and the weight's gradient."""
    layer = nn.Linear(64, 16, bias=False)
    x = torch.nested.nested_tensor([torch.zeros(3, 64), torch.zeros(5, 64)], layout=torch.jagged)
    with Recorder() as recorder:
        layer(x).values().sum().backward()
    assert recorder.trace().ledger.flops == 2 * (2 * 8 * 64 * 16)


def test_attention_grows_with_the_square_of_the_length():
    """Twice the tokens: twice the layers, four times the attention."""

    def attention(length):
        ledger = trace(Block(), torch.zeros(2, length, d), loss=lambda y, _: y.mean()).ledger
        return ledger.where(kind="attention").flops, ledger.where(kind="matmul").flops

    (short, layers), (long, more_layers) = attention(32), attention(64)
    assert (long, more_layers) == (4 * short, 2 * layers)


def test_counting_on_real_tensors_counts_the_same():
    """Whether it runs or is only looked at."""
    model = Block()
    with Recorder() as recorder:
        model(tokens()).mean().backward()
    looked_at = trace(model, tokens(), loss=lambda y, _: y.mean()).ledger
    assert recorder.trace().ledger.flops == looked_at.flops
