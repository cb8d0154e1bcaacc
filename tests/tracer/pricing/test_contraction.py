"""Products in the backward pass, and products that are more than one."""

import pytest
import torch
from torch import nn

from torchledger.tracer import Recorder, trace

R, I, O = 4, 6, 5


def _gradients(model, x):
    ledger = trace(model, x, loss=lambda y, _: y.sum()).ledger.where(phase="backward", kind="matmul")
    return {of: part.flops for of, part in ledger.by("gradient_of").items()}


class Weighted(nn.Module):
    """A weight and a product with it."""

    def __init__(self, shape, product):
        super().__init__()
        self.weight, self.product = nn.Parameter(torch.zeros(shape)), product

    def forward(self, x):
        """The product."""
        return self.product(x, self.weight)


PRODUCT = 2 * R * I * O
CASES = {
    "mm": ((I, O), torch.mm, (R, I)),
    "addmm": ((I, O), lambda x, w: torch.addmm(x.new_zeros(O), x, w), (R, I)),
    "bmm": ((1, I, O), torch.bmm, (1, R, I)),
    "baddbmm": ((1, I, O), lambda x, w: torch.baddbmm(x.new_zeros(1, 1, O), x, w), (1, R, I)),
    "addbmm": ((1, I, O), lambda x, w: torch.addbmm(x.new_zeros(R, O), x, w), (1, R, I)),
    "einsum": ((I, O), lambda x, w: torch.einsum("ri,io->ro", x, w), (R, I)),
    "tensordot": ((I, O), lambda x, w: torch.tensordot(x, w, 1), (R, I)),
    "cdist": ((O, I), lambda x, w: torch.cdist(x, w, compute_mode="use_mm_for_euclid_dist"), (R, I)),
}


@pytest.mark.parametrize("name", CASES)
def test_whose_gradient_a_product_makes(name):
    """Of x W, dy Wᵀ is the input's and xᵀ dy the weight's."""
    shape, product, of = CASES[name]
    assert _gradients(Weighted(shape, product), torch.ones(of, requires_grad=True)) == {
        "input": PRODUCT,
        "weight": PRODUCT,
    }


def test_gradients_of_a_bilinear_form():
    """Two inputs' gradients take two contractions each; the weight's an outer product and one."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.form = nn.Bilinear(I, 3, O, bias=False)

        def forward(self, x, y):
            return self.form(x, y)

    x = (torch.ones(R, I, requires_grad=True), torch.ones(R, 3, requires_grad=True))
    whole = 2 * R * O * I * 3
    # dx_ni: Σ_o g_no W_oij = t_nij, Σ_j t b; dy_nj: Σ_i x W = t_noj, Σ_o t g; dW_oij: x_ni g_no = t_noi, Σ_n t b.
    assert _gradients(Both(), x) == {
        "input": whole + 2 * R * I * 3 + whole + 2 * R * O * 3,
        "weight": whole,
    }


def test_a_product_of_complex_numbers_is_four_of_real_ones():
    """(a + ib)(c + id): four multiply-adds, 8 FLOPs."""
    with Recorder() as recorder:
        torch.mm(torch.zeros(2, 3, dtype=torch.complex64), torch.zeros(3, 4, dtype=torch.complex64))
    assert recorder.trace().ledger.flops == 8 * 2 * 3 * 4


def test_beta_zero_adds_nothing():
    with Recorder() as recorder:
        torch.addmm(torch.zeros(4), torch.zeros(2, 3), torch.zeros(3, 4), beta=0)
    assert [line.op for line in recorder.trace().ledger if line.op != "fill"] == ["matmul"]


def test_inference_mode_runs_the_same_operations():
    """There a linear layer comes whole; it is taken apart as its kernels are."""
    layer, x = nn.Linear(6, 5), torch.ones(4, 6)
    with Recorder() as recorder, torch.inference_mode():
        layer(x)
    assert [(line.op, line.work.flops_full) for line in recorder.trace().ledger] == [
        ("matmul", 2 * 4 * 6 * 5),
        ("bias_add", 4 * 5),
    ]
