"""Prices of products with sparse matrices: what is stored counts, zeros among it too, and nothing else."""

from __future__ import annotations

from torchledger import ops
from torchledger.ops import Piece
from torchledger.ops.multilinear import at_most
from torchledger.tracer.pricing.seen import Seen, price_of, size_of
from torchledger.tracer.signature import SparseMeta, TensorMeta


def sparse_product(seen: Seen) -> tuple[Piece, ...] | None:
    """A product that has a sparse operand, `None` where it has none."""
    operands = [
        seen.arguments[name]
        for name in ("sparse", "mat1", "self", "dense", "mat2", "vec", "other")
        if isinstance(seen.arguments.get(name), (SparseMeta, TensorMeta))
    ]
    if "mat1" in seen.arguments:  # `self` is what is added to
        operands = [seen.arguments["mat1"], seen.arguments["mat2"]]
    if not any(isinstance(operand, SparseMeta) for operand in operands):
        return None
    left, right = operands[:2]
    if isinstance(left, SparseMeta) and isinstance(right, SparseMeta):
        return _of_two(left, right)
    stored = left if isinstance(left, SparseMeta) else right
    columns = (right.shape[1] if len(right.shape) > 1 else 1) if stored is left else size_of(left.shape[:-1])
    size = stored.dtype.itemsize
    if stored.num_values is None:
        return tuple(
            at_most(piece, 2 * size_of(stored.shape) * columns)
            for piece in ops.sparse_matmul(0, columns, element_bytes=size)
        )
    pieces = ops.sparse_matmul(stored.num_values, columns, element_bytes=size)
    added = "mat1" in seen.arguments and seen.arguments.get("beta", 1) != 0
    return pieces + (ops.pointwise("add", left.shape[0] * columns) if added else ())


@price_of("_sparse_mm", "_sparse_mm_reduce_impl", "_sparse_addmm", "_sparse_sparse_matmul", "hspmm", "sspaddmm")
def always_sparse(seen: Seen) -> tuple[Piece, ...]:
    """A product that exists for sparse operands only."""
    pieces = sparse_product(seen)
    assert pieces is not None, f"{seen.op} has a sparse operand"  # or it is not this operation
    return pieces


@price_of("sparse_sampled_addmm")
def sampled_product(seen: Seen) -> tuple[Piece, ...]:
    """A product of dense matrices at the places that a sparse one stores."""
    stored, left = seen.sparse("self"), seen.tensor("mat1")
    values = None if stored is None else stored.num_values
    if values is None:
        dense = ops.matmul(1, left.shape[-2], seen.tensor("mat2").shape[-1], left.shape[-1])
        return tuple(at_most(piece, piece.work.flops_full) for piece in dense)
    return ops.sparse_matmul(values, left.shape[-1], element_bytes=left.dtype.itemsize)


@price_of("_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", "_sparse_semi_structured_linear")
@price_of("_cslt_sparse_mm")
def semi_structured_product(seen: Seen) -> tuple[Piece, ...]:
    """Two of four weights are stored: half the multiply-adds of the dense product, which is what the kernel runs."""
    if seen.op == "_sparse_semi_structured_linear":
        x, stored = seen.tensor("input"), seen.tensor("weight")
        return ops.matmul(1, size_of(x.shape[:-1]), stored.shape[0], stored.shape[1], element_bytes=x.dtype.itemsize)
    name = "compressed_A" if seen.op == "_cslt_sparse_mm" else "mat1"
    dense = seen.tensor("dense_B" if seen.op == "_cslt_sparse_mm" else "mat2")
    stored_columns = dense.shape[0] // 2
    return ops.matmul(
        1, seen.tensor(name).shape[0], dense.shape[-1], stored_columns, element_bytes=dense.dtype.itemsize
    )


def _of_two(left: SparseMeta, right: SparseMeta) -> tuple[Piece, ...]:
    """A product of two sparse matrices meets stored values in pairs that only their places tell."""
    columns = right.shape[1]
    most = size_of(left.shape) * columns
    if left.num_values is not None and right.num_values is not None:
        most = min(left.num_values * columns, right.num_values * left.shape[0])
    return tuple(at_most(piece, 2 * most) for piece in ops.sparse_matmul(0, columns))
