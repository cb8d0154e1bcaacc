"""Single operations, forward: x is (32, 64) or (4, 32, 64), w goes from 64 to 16."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from torchledger import ops
from torchledger.ledger import Convention
from torchledger.ops import Piece
from torchledger.tracer import Recorder
from torchledger.tracer.pricing import price_of, prices

ONE = 2 * 32 * 64 * 16
FP8 = torch.float8_e4m3fn


def x(*batch):
    return torch.zeros(*batch, 32, 64)


def w(*batch):
    return torch.zeros(*batch, 64, 16)


def _scaled(*, version):
    a, b, one = x().to(FP8), torch.zeros(16, 64).to(FP8).t(), torch.tensor(1.0)
    if version == 1:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)
    kind = functional.ScalingType.TensorWise
    return functional.scaled_mm(a, b, one, kind, one, kind, output_dtype=torch.bfloat16)


def _int8():
    return torch._int_mm(x().to(torch.int8), w().to(torch.int8))


def _packed():
    weight = torch.zeros(16, 64, dtype=torch.int8)
    return torch._weight_int8pack_mm(x().bfloat16(), weight, torch.zeros(16).bfloat16())


ROWS = {
    "x @ w": (lambda: x() @ w(), ONE, 65_536),
    "mm": (lambda: torch.mm(x(), w()), ONE, 65_536),
    "matmul that broadcasts": (lambda: x() @ w(4), 4 * ONE, 262_144),
    "linear 3-D": (lambda: functional.linear(x(4), torch.zeros(16, 64)), 4 * ONE, 262_144),
    "addmm": (lambda: torch.addmm(torch.zeros(16), x(), w()), ONE, 65_536),
    "bmm": (lambda: torch.bmm(x(4), w(4)), 4 * ONE, 262_144),
    "baddbmm": (lambda: torch.baddbmm(torch.zeros(4, 32, 16), x(4), w(4)), 4 * ONE, 262_144),
    "addbmm": (lambda: torch.addbmm(torch.zeros(32, 16), x(4), w(4)), 4 * ONE, 262_144),
    "mv": (lambda: torch.mv(x(), torch.zeros(64)), 2 * 32 * 64, 4_096),
    "dot": (lambda: torch.dot(torch.zeros(64), torch.zeros(64)), 2 * 64, 128),
    "vdot": (lambda: torch.vdot(torch.zeros(64), torch.zeros(64)), 2 * 64, 128),
    "addmv": (lambda: torch.addmv(torch.zeros(32), x(), torch.zeros(64)), 2 * 32 * 64, 4_096),
    "addr": (lambda: torch.addr(x(), torch.zeros(32), torch.zeros(64)), 2 * 32 * 64, 4_096),
    "3-D @ vector": (lambda: x(4) @ torch.zeros(64), 4 * 2 * 32 * 64, 16_384),
    "einsum of 2": (lambda: torch.einsum("bij,jk->bik", x(4), w()), 4 * ONE, 262_144),
    # left to right: 32·64·16, then 32·16·8
    "einsum of 3": (lambda: torch.einsum("ij,jk,kl->il", x(), w(), torch.zeros(16, 8)), ONE + 2 * 32 * 16 * 8, 73_728),
    "einsum with ...": (lambda: torch.einsum("...ij,jk->...ik", x(4), w()), 4 * ONE, 262_144),
    "tensordot": (lambda: torch.tensordot(x(4), w(), 1), 4 * ONE, 262_144),
    # the cheaper order first: 64·16·8, then 32·64·8
    "chain": (
        lambda: torch.linalg.multi_dot([x(), w(), torch.zeros(16, 8)]),
        2 * 64 * 16 * 8 + 2 * 32 * 64 * 8,
        49_152,
    ),
    "conv1d": (
        lambda: functional.conv1d(torch.zeros(4, 64, 32), torch.zeros(16, 64, 3), padding=1),
        4 * ONE * 3,
        786_432,
    ),
    "conv2d, same": (
        lambda: functional.conv2d(torch.zeros(2, 16, 16, 16), torch.zeros(16, 16, 3, 3), padding="same"),
        2 * 2 * 256 * 9 * 16 * 16,
        2_359_296,
    ),
    "Bilinear": (
        lambda: nn.Bilinear(64, 64, 16)(x(), x()),
        2 * 32 * 16 * 64 * 64 + 2 * 32 * 16 * 64,
        4_259_840,
    ),
    "cdist": (lambda: torch.cdist(x(), torch.zeros(16, 64)), ONE, 65_536),
    "_int_mm": (_int8, ONE, 65_536),
    "_weight_int8pack_mm": (_packed, ONE, 65_536),
    "_scaled_mm": (lambda: _scaled(version=1), ONE, 65_536),
    "scaled_mm": (lambda: _scaled(version=2), ONE, 65_536),
}


@pytest.mark.parametrize("name", ROWS)
def test_an_operation(name, look):
    """Two FLOPs a multiply-add; biases and sums of three are no contraction."""
    run, flops, published = ROWS[name]
    ledger = look(run).ledger
    assert ledger.is_complete
    assert ledger.flops == flops == published


def test_an_outer_product_multiplies_and_adds_nothing(look):
    """Of two vectors it is torch's product element by element: 64·64 multiplications, and no sum to contract."""
    ledger = look(lambda: torch.outer(torch.zeros(64), torch.zeros(64))).ledger
    assert ledger.flops == 0
    assert ledger.under(Convention(operations="all")).flops == 64 * 64 == 4_096


@pytest.mark.parametrize(
    ("name", "number_format"),
    [("_int_mm", "int8"), ("_weight_int8pack_mm", "bf16"), ("_scaled_mm", "fp8"), ("scaled_mm", "fp8")],
)
def test_the_format_that_a_narrow_product_computes_in(name, number_format, look):
    """Operands in 8 bits multiply in 8 bits, FP8 of both kinds; a packed weight is unpacked into the other's format."""
    products = look(ROWS[name][0]).ledger.where(kind="matmul")
    assert {line.number_format for line in products} == {number_format}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_products_forward_and_backward(dtype, look):
    """64 rows shared out among 4 experts: 2·64·32·16, whichever rows; so much again for each gradient."""

    def run():
        rows, experts = torch.zeros(64, 32, dtype=dtype, requires_grad=True), torch.zeros(4, 32, 16, dtype=dtype)
        y = functional.grouped_mm(
            rows, experts.requires_grad_(), offs=torch.tensor([16, 32, 48, 64], dtype=torch.int32)
        )
        (y * y).sum().backward()

    ledger = look(run).ledger
    assert ledger.flops == 3 * 2 * 64 * 32 * 16
    assert any("grouped products" in assumption for assumption in ledger.assumptions)


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.filterwarnings("ignore:Sparse.*beta state")
def test_sparse_matrix_products(layout, look):
    """Stored values count: 3 of them with 16 columns."""
    dense = torch.zeros(32, 32)
    dense[0, 1], dense[2, 3], dense[31, 0] = 1.0, 2.0, 3.0
    matrix = dense.to_sparse() if layout == "coo" else dense.to_sparse_csr()
    assert look(lambda: matrix @ torch.zeros(32, 16)).ledger.where(kind="matmul").flops == 2 * 3 * 16


@pytest.mark.filterwarnings("ignore")  # torch's own, about leaving this to another package
def test_a_dynamically_quantised_layer():
    """Weights packed to 8 bits, activations on the way: one product, in int8. A packed weight is no tensor to fake."""
    quantized = pytest.importorskip("torch.ao.nn.quantized.dynamic")
    layer = quantized.Linear(64, 16)
    with Recorder() as recorder:
        layer(torch.zeros(32, 64))
    (product,) = recorder.trace().ledger.where(kind="matmul")
    assert (product.work.flops_full, product.number_format) == (2 * 32 * 64 * 16, "int8")


def test_a_custom_operation_is_priced_in_one_line_each_way(look):
    """Without a price it is named, with the most it could cost; with one for each direction it is counted."""

    @torch.library.custom_op("torchledger_rows::product", mutates_args=())
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b

    @torch.library.custom_op("torchledger_rows::product_backward", mutates_args=())
    def product_backward(g: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return g @ b.t(), a.t() @ g

    product.register_fake(lambda a, b: a.new_empty(a.shape[0], b.shape[1]))
    product_backward.register_fake(lambda g, a, b: (torch.empty_like(a), torch.empty_like(b)))  # noqa: ARG005
    product.register_autograd(
        lambda ctx, g: product_backward(g, *ctx.saved_tensors),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),  # noqa: ARG005
    )

    def run():
        product(x().requires_grad_(), w().requires_grad_()).mul(1.0).sum().backward()

    before = look(run).ledger
    assert not before.is_complete
    unknown = {line.op: dict(line.shape)["at_most_flops"] for line in before.unknown_lines}
    assert unknown["torchledger_rows.product.default"] == ONE, "which is exact for a matrix product"

    @price_of("torchledger_rows::product")
    def forward(seen):
        (m, k), (_, n) = seen.tensor("a").shape, seen.tensor("b").shape
        return _pieces(m, n, k)

    @price_of("torchledger_rows::product_backward")
    def backward(seen):
        (m, k), (_, n) = seen.tensor("a").shape, seen.tensor("b").shape
        return (*_pieces(m, k, n, "input"), *_pieces(k, n, m, "weight"))

    try:
        ledger = look(run).ledger
        assert ledger.flops == 3 * ONE
        gradients = ledger.where(phase="backward", kind="matmul").by("gradient_of")
        assert {of: part.flops for of, part in gradients.items()} == {"input": ONE, "weight": ONE}
    finally:
        del prices["torchledger_rows::product"], prices["torchledger_rows::product_backward"]


def _pieces(m, n, k, gradient_of="none") -> tuple[Piece, ...]:
    return ops.matmul(1, m, n, k, gradient_of=gradient_of)
