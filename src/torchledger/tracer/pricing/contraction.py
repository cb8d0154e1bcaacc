"""Prices of matrix products and what is made of them: torch's arguments -> sizes -> `ops`."""

from __future__ import annotations

from torchledger import ops
from torchledger.ledger import GradientOf
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.pricing.sparse import sparse_product
from torchledger.tracer.signature import TensorMeta

#: A multiply-add of complex numbers is four multiply-adds of real ones.
_COMPLEX_PRODUCTS = 4


@price_of("mm", "bmm", "mv", "dot", "vdot", "linalg_matmul")
def product(seen: Seen) -> tuple[Piece, ...]:
    """[b, m, k] @ [b, k, n]."""
    return sparse_product(seen) or product_of(*_operands(seen))


@price_of("addmm", "baddbmm", "addmv", "addmm_", "baddbmm_", "addmv_", "_addmm_activation")
def product_with_bias(seen: Seen) -> tuple[Piece, ...]:
    """A product, and one add an element of the result where something is added (β = 0 adds nothing)."""
    if (sparse := sparse_product(seen)) is not None:
        return sparse
    left, right = _operands(seen)
    pieces = product_of(left, right)
    result = seen.results[0].shape
    if seen.arguments.get("beta", 1) != 0:
        pieces += ops.bias_add(size_of(result[:-1]), result[-1], element_bytes=left.dtype.itemsize)
    if seen.op == "_addmm_activation":
        pieces += ops.pointwise("gelu_tanh" if seen.arguments["use_gelu"] else "relu", size_of(result))
    return pieces


@price_of("addbmm", "addbmm_")
def summed_products(seen: Seen) -> tuple[Piece, ...]:
    """[m, n] + Σ_b [b, m, k] @ [b, k, n]: one product that contracts b and k."""
    left, right = _operands(seen)
    batch, m, k = left.shape
    pieces = ops.matmul(1, m, right.shape[2], batch * k, element_bytes=left.dtype.itemsize)
    if seen.arguments.get("beta", 1) != 0:
        pieces += ops.bias_add(m, right.shape[2], element_bytes=left.dtype.itemsize)
    return pieces


@price_of("addr", "addr_", "ger")
def outer_product_added(seen: Seen) -> tuple[Piece, ...]:
    """A + x yᵀ: one multiply-add an element (BLAS' GER)."""
    m, n = seen.results[0].shape
    return ops.matmul(1, m, n, 1, element_bytes=seen.results[0].dtype.itemsize)


@price_of("linear", "mkldnn_linear", "_mkl_linear", "mkl::_mkl_linear", "mkldnn::_linear_pointwise")
def linear(seen: Seen) -> tuple[Piece, ...]:
    """A product x Wᵀ + b as one operation (inference mode keeps it whole)."""
    x = seen.optional("input") or seen.optional("self") or seen.tensor("X")
    weight = seen.optional("weight") or seen.tensor("W")
    bias = seen.optional("bias") or seen.optional("B")
    return ops.linear(
        size_of(x.shape[:-1]), x.shape[-1], seen.num_results // max(size_of(x.shape[:-1]), 1), bias=bias is not None,
        element_bytes=weight.dtype.itemsize,
    )  # fmt: skip


@price_of("linear_backward")
def linear_backward(seen: Seen) -> tuple[Piece, ...]:
    """The gradients that its mask asks for: of x, W and b."""
    x, weight = seen.tensor("self"), seen.tensor("weight")
    size = x.dtype.itemsize
    sizes = size_of(x.shape[:-1]), x.shape[-1], weight.shape[0]
    of_input, of_weight, of_bias = seen.flags("output_mask")
    pieces: tuple[Piece, ...] = ops.linear_input_gradient(*sizes, element_bytes=size) if of_input else ()
    if of_weight:
        pieces += ops.linear_weight_gradient(*sizes, element_bytes=size)
    return pieces + (ops.bias_gradient(sizes[0], sizes[2], element_bytes=size) if of_bias else ())


@price_of("matmul")
def batched_product(seen: Seen) -> tuple[Piece, ...]:
    """A product that broadcasts, where torch keeps it whole (tensors of uneven rows)."""
    left, right = _operands(seen)
    m = left.num_elements // max(left.shape[-1], 1)
    if len(right.shape) <= 2:
        return ops.matmul(
            1, m, right.shape[-1] if len(right.shape) > 1 else 1, left.shape[-1], element_bytes=left.dtype.itemsize
        )
    n = right.shape[-1]
    rows = seen.num_results // max(n, 1)
    return ops.matmul(1, rows, n, left.shape[-1], element_bytes=left.dtype.itemsize)


@price_of("matmul_backward")
def batched_product_backward(seen: Seen) -> tuple[Piece, ...]:
    """Of y = A B: dA = dy Bᵀ and dB = Aᵀ dy, each as many multiply-adds as y."""
    gradient, left = seen.tensor("grad"), seen.tensor("self")
    rows, n, k = gradient.num_elements // max(gradient.shape[-1], 1), gradient.shape[-1], left.shape[-1]
    size = left.dtype.itemsize
    pieces: tuple[Piece, ...] = ()
    for asked, of in zip(seen.flags("mask"), ("input", "weight"), strict=True):
        side: GradientOf = "input" if of == "input" else "weight"
        sizes = (rows, k, n) if side == "input" else (k, n, rows)
        pieces += ops.matmul(1, *sizes, element_bytes=size, gradient_of=side) if asked else ()
    return pieces


@price_of("_trilinear")
def trilinear(seen: Seen) -> tuple[Piece, ...]:
    """Three operands, pair by pair, over the indices that the expanded dimensions make.

    The first pair sums over what the third operand does not have; the second sums over the rest
    (aten/src/ATen/native/Linear.cpp).
    """
    expanded = [set(seen.arguments[name][1:]) for name in ("expand1", "expand2", "expand3")]
    summed = set(seen.arguments["sumdim"][1:])
    rank = len(seen.tensor("i1").shape) + len(expanded[0])
    sizes = [0] * rank
    for name, missing in zip(("i1", "i2", "i3"), expanded, strict=True):
        for dim, size in zip((d for d in range(rank) if d not in missing), seen.tensor(name).shape, strict=True):
            sizes[dim] = size
    of_first_pair = [dim for dim in range(rank) if not (dim in expanded[0] and dim in expanded[1])]
    first_sums = [dim for dim in summed if dim in expanded[2]]
    of_second_pair = [
        dim for dim in range(rank) if dim not in first_sums and (dim in of_first_pair or dim not in expanded[2])
    ]
    return ops.trilinear(
        size_of(tuple(sizes[dim] for dim in of_first_pair)),
        size_of(tuple(sizes[dim] for dim in of_second_pair)),
        first_sums=bool(first_sums),
        second_sums=bool(summed.difference(first_sums)),
        element_bytes=seen.tensor("i1").dtype.itemsize,
    )


@price_of("_euclidean_dist")
def distances_by_product(seen: Seen) -> tuple[Piece, ...]:
    """Distances of two sets of points, by their product."""
    x, y = seen.tensor("x1"), seen.tensor("x2")
    rows, size = x.shape[-2:]
    batch = seen.num_results // max(rows * y.shape[-2], 1)
    return ops.distances_by_product(batch, rows, y.shape[-2], size, element_bytes=x.dtype.itemsize)


@price_of("_cdist_forward", "_cdist_backward")
def distances(seen: Seen) -> tuple[Piece, ...]:
    """Distances of two sets of points one by one, and the gradient of one of the sets."""
    x, y = seen.tensor("x1"), seen.tensor("x2")
    pairs = seen.num_results * y.shape[-2] // x.shape[-1] if seen.op.endswith("backward") else seen.num_results
    return ops.distances(
        pairs, x.shape[-1], exponent=float(seen.arguments["p"]), element_bytes=x.dtype.itemsize,
        backward=seen.op.endswith("backward"),
    )  # fmt: skip


@price_of("_pdist_forward", "_pdist_backward")
def distances_within(seen: Seen) -> tuple[Piece, ...]:
    """Distances of every pair of one set: n·(n - 1)/2."""
    x = seen.tensor("self")
    return ops.distances(
        x.shape[0] * (x.shape[0] - 1) // 2, x.shape[1], exponent=float(seen.arguments["p"]),
        element_bytes=x.dtype.itemsize, backward=seen.op.endswith("backward"),
    )  # fmt: skip


def product_of(left: TensorMeta, right: TensorMeta) -> tuple[Piece, ...]:
    """The product of two operands, matrices, stacks of them or vectors."""
    batch, m, k = (1,) * (3 - len(left.shape)) + left.shape
    n = right.shape[-1] if len(right.shape) > 1 else 1
    parts = _COMPLEX_PRODUCTS if left.dtype.is_complex else 1
    return ops.matmul(batch * parts, m, n, k, element_bytes=left.dtype.itemsize)


def _operands(seen: Seen) -> tuple[TensorMeta, TensorMeta]:
    left = next(name for name in ("mat1", "batch1", "mat", "vec1", "self") if seen.optional(name) is not None)
    right = next(
        name
        for name in ("mat2", "batch2", "vec2", "vec", "tensor", "other")
        if name != left and seen.optional(name) is not None
    )
    return seen.tensor(left), seen.tensor(right)
