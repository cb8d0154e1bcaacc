"""Prices of making, merging and reading sparse tensors, and of element-wise work on the values that one stores."""

from __future__ import annotations

from dataclasses import replace

from torchledger import ops
from torchledger.ledger import Work
from torchledger.ops import Piece
from torchledger.tracer.pricing.seen import Seen, price_of
from torchledger.tracer.pricing.untold import untold
from torchledger.tracer.signature import SparseMeta

_COPIES = (
    "_to_dense", "_to_sparse", "_to_sparse_bsc", "_to_sparse_bsr", "_to_sparse_csc", "_to_sparse_csr", "sparse_mask",
    "_sparse_mask_projection", "copy_sparse_to_sparse", "copy_sparse_to_sparse_", "_sparse_sum_backward",
    "_convert_indices_from_coo_to_csr", "_convert_indices_from_csr_to_coo", "_to_sparse_semi_structured",
    "_convert_weight_to_int4pack", "_convert_weight_to_int4pack_for_cpu", "_dyn_quant_pack_4bit_weight",
    "_cslt_compress",
)  # fmt: skip


@price_of(*_COPIES)
def laid_out(seen: Seen) -> tuple[Piece, ...]:
    """Values put into another layout."""
    return ops.copy(seen.results[-1].num_elements if seen.results else seen.num_results)


@price_of("_coalesce")
def merged(seen: Seen) -> tuple[Piece, ...]:
    """Indices in order (integers), values of one index added: one add for each value that goes into another."""
    values = num_stored(seen)
    if values is None:
        return untold(seen, "how many indices a sparse tensor has twice is data")
    kept = seen.results[-1].num_elements
    return (Piece("coalesce", "gather", Work.of_flops(values - kept), (("values", values),)),)


@price_of("_sparse_sum", "_sparse_csr_sum", "_sparse_csr_prod")
def summed(seen: Seen) -> tuple[Piece, ...]:
    """An add (or product) a stored value, less one for each result."""
    values = num_stored(seen)
    if values is None:
        return untold(seen, "how many values a sparse tensor stores is data")
    kept = seen.results[-1].num_elements if seen.results else 1
    return tuple(replace(piece, op="sum") for piece in ops.reduction("sum", 1, max(values - kept, 0) + 1))


@price_of("_sparse_softmax", "_sparse_softmax_backward_data")
@price_of("_sparse_log_softmax", "_sparse_log_softmax_backward_data")
def rows_of_stored(seen: Seen) -> tuple[Piece, ...]:
    """Softmax of the stored values of each row."""
    return untold(seen, "how stored values fall into rows is data")


@price_of("_sparse_semi_structured_tile", "_sparse_semi_structured_apply", "_sparse_semi_structured_apply_dense")
def two_of_four(seen: Seen) -> tuple[Piece, ...]:
    """Two of every four values are kept: found by 5 compares (a sort of four), or by a mask that is there."""
    elements = seen.first.num_elements
    compares = 5 * elements // 4 if seen.op.endswith("tile") else 0
    return (Piece("semi_structured", "copy", Work.of_flops(compares), (("elements", elements),)),)


@price_of("_spsolve", "_sparse_mm_reduce_impl_backward")
def of_data(seen: Seen) -> tuple[Piece, ...]:
    """Work that follows the pattern of stored values."""
    return untold(seen, "it follows the pattern of the stored values, which is data")


def is_sparse(seen: Seen) -> bool:
    """Whether an argument is a sparse tensor."""
    return any(isinstance(value, SparseMeta) for value in seen.arguments.values())


def num_stored(seen: Seen) -> int | None:
    """The fewest values that a sparse argument stores: what element-wise work is done on."""
    counts = [value.num_values for value in seen.arguments.values() if isinstance(value, SparseMeta)]
    known = [count for count in counts if count is not None]
    return min(known) if known else None
