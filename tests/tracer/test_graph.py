import torch
from torch import nn

from torchledger.tracer import trace

ROWS, IN, OUT = 4, 6, 5
PRODUCT = 2 * ROWS * IN * OUT


def _gradients(model):
    ledger = trace(model, torch.ones(ROWS, IN, requires_grad=True), loss=lambda y, _: y.sum()).ledger
    return {
        key: part.flops
        for key, part in ledger.where(kind="matmul", phase="backward").by("gradient_of").items()
        if part.flops
    }


class Product(torch.autograd.Function):
    """A user's own x Wᵀ with a backward of its own."""

    @staticmethod
    def forward(ctx, x, weight):
        """The product."""
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx, gradient):
        """Its two gradients."""
        x, weight = ctx.saved_tensors
        return gradient @ weight, gradient.t() @ x


def test_a_users_own_autograd_function_is_told_apart():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(OUT, IN))

        def forward(self, x):
            return Product.apply(x, self.weight)

    assert _gradients(Net()) == {"input": PRODUCT, "weight": PRODUCT}


def test_a_parametrised_weight_is_a_weight():
    """Spectral norm divides the weight by a number made of the weight and two buffers."""
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(IN, OUT, bias=False)).eval()
    assert _gradients(model) == {"input": PRODUCT, "weight": PRODUCT}


def test_two_activations_have_only_inputs():
    class Gram(nn.Module):
        def forward(self, x):
            return x @ x.t()

    assert _gradients(Gram()) == {"input": 2 * 2 * ROWS * ROWS * IN}


def test_a_buffer_in_a_product_gets_no_gradient():
    """X B with a fixed B: one product in the backward pass, of the input."""

    class Fixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("basis", torch.zeros(IN, OUT))

        def forward(self, x):
            return x @ self.basis

    assert _gradients(Fixed()) == {"input": PRODUCT}
