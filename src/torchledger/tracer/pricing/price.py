"""What an operation call costs: its pieces from `ops`, its bytes from the tensors themselves."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchledger.ledger import Work
from torchledger.ops import Piece, moved
from torchledger.tracer.pricing import (  # noqa: F401  # importing them enters their prices
    attention,
    collective,
    contraction,
    convolution,
    elements,
    narrow,
    recurrent,
    rows,
    sparse,
)
from torchledger.tracer.pricing.bound import most_it_could_cost
from torchledger.tracer.pricing.narrow import FORMATS, IN_FIRST_FORMAT
from torchledger.tracer.pricing.seen import Seen, price_for
from torchledger.tracer.signature import Signature, SparseMeta, TensorMeta, number_format

#: No work at all beyond the views that `OpOverload.is_view` tells of: aliases, and memory that is not written.
_FREE = frozenset(
    {
        "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view", "lift_fresh", "lift",
        "_local_scalar_dense", "resize_", "set_", "detach_", "is_same_size", "_reshape_alias", "view_as_real",
        "view_as_complex",
        "unsafe_split", "unsafe_split_with_sizes", "unsafe_chunk", "sym_size", "sym_numel", "sym_stride",
    }
)  # fmt: skip
#: Operations that do not read their first argument: they write it in place, or ask for its shape only.
_UNREAD = frozenset(
    {
        "copy_", "fill_", "zero_", "normal_", "uniform_", "bernoulli_", "exponential_", "random_", "_foreach_zero_",
        "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "new_zeros", "new_ones", "new_full",
    }
)  # fmt: skip
#: Operations that touch only a part of an operand: the rule's bytes are right, the tensors' are not.
_PARTIAL = frozenset(
    {"embedding", "index_select", "gather", "index", "index_add_", "scatter_add_", "index_put_", "scatter_",
     "_index_put_impl_", "nll_loss_forward", "take_along_dim", "all_gather_copy_in", "split_with_sizes_copy", "chunk_cat"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Priced:
    """Pieces of an operation, the number format it works in and what was assumed; no pieces where it does no work."""

    pieces: tuple[Piece, ...]
    number_format: str
    assumptions: tuple[str, ...] = ()


def price(signature: Signature, results: tuple[TensorMeta, ...]) -> Priced:
    """What the call costs.

    An operation without a price is one piece of kind `unknown` whose FLOPs are `None`; the most they could be stands in
    its shape (`at_most_flops`).
    """
    namespace, op, _ = signature.op.split(".")
    if op in _FREE and namespace in {"aten", "prims"}:
        return Priced((), "")
    if namespace == "higher_order":
        read, written = sum(meta.num_bytes for meta in signature.tensors()), sum(meta.num_bytes for meta in results)
        return Priced((_unknown(op, signature, results, read, written),), _format(signature, results))
    seen = Seen(op, signature.bound(), results, signature.needed)
    read, written = _bytes(signature, results)
    price = price_for(namespace, op)
    if price is None:
        pieces: tuple[Piece, ...] = (_unknown(signature.op, signature, results, read, written),)
    else:
        pieces = price(seen)
        if op not in _PARTIAL and not any(piece.kind == "collective" for piece in pieces):
            pieces = moved(pieces, bytes_read=read, bytes_written=written)
    return Priced(pieces, _format(signature, results), tuple(seen.assumptions))


def _unknown(op: str, signature: Signature, results: tuple[TensorMeta, ...], read: int, written: int) -> Piece:
    work = Work(None, None, None, None, bytes_read=read, bytes_written=written)
    return Piece(op, "unknown", work, (("at_most_flops", most_it_could_cost(signature, results)),))


def _bytes(signature: Signature, results: tuple[TensorMeta, ...]) -> tuple[int, int]:
    """Bytes of every distinct operand and every distinct result or operand written in place."""
    schema = signature.overload()._schema  # noqa: SLF001  # torch's only way to a schema
    arguments = signature.bound()
    unread = schema.arguments[0].name if signature.op.split(".")[1] in _UNREAD else ""
    read: dict[TensorMeta | SparseMeta, int] = {}
    written = 0
    for argument in schema.arguments:
        value = arguments[argument.name]
        metas = [value] if isinstance(value, TensorMeta) else list(value[1:]) if isinstance(value, tuple) else []
        metas = [value] if isinstance(value, SparseMeta) else metas
        for meta in metas:
            if isinstance(meta, (TensorMeta, SparseMeta)):
                if argument.name != unread:
                    read[meta] = meta.num_bytes
                if argument.is_write:
                    written += meta.num_bytes
    if not any(argument.is_write for argument in schema.arguments):
        written = sum(meta.num_bytes for meta in results)
    return sum(read.values()), written


def _format(signature: Signature, results: tuple[TensorMeta, ...]) -> str:
    """Format of a contraction's operands and of anything else's result; integers only where nothing is floating."""
    operands = signature.tensors()
    op = signature.op.split(".")[1]
    if op in FORMATS and not signature.op.startswith("aten.linear"):
        return FORMATS[op]
    if op in IN_FIRST_FORMAT:
        return number_format(operands[0].dtype)
    overload_is_product = op in {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "linear"}
    candidates = [*operands[-2:], *results] if overload_is_product else [*results, *operands]
    for meta in candidates:
        if meta.dtype.is_floating_point or meta.dtype.is_complex:
            return number_format(meta.dtype)
    return number_format(candidates[0].dtype) if candidates else number_format(torch.float32)
