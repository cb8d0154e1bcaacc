"""What an operation call costs: its pieces from `ops`, its bytes from the tensors themselves."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torchledger.ledger import Work
from torchledger.ops import Piece, moved
from torchledger.tracer.pricing import contraction, elements, rows  # noqa: F401  # importing them enters their prices
from torchledger.tracer.pricing.seen import Seen, prices
from torchledger.tracer.signature import Signature, TensorMeta, number_format

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
     "_index_put_impl_", "nll_loss_forward", "take_along_dim"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Priced:
    """Pieces of an operation and the number format it works in; no pieces where it does no work."""

    pieces: tuple[Piece, ...]
    number_format: str


def price(signature: Signature, results: tuple[TensorMeta, ...]) -> Priced:
    """What the call costs. An operation without a price is one piece of kind `unknown` whose FLOPs are `None`."""
    namespace, op, _ = signature.op.split(".")
    if op in _FREE:
        return Priced((), "")
    if namespace == "higher_order":
        read, written = sum(meta.num_bytes for meta in signature.tensors()), sum(meta.num_bytes for meta in results)
        unknown = Work(None, None, None, None, bytes_read=read, bytes_written=written)
        return Priced((Piece(op, "unknown", unknown),), _format(signature, results))
    seen = Seen(op, signature.bound(), results)
    read, written = _bytes(signature, results)
    price = prices.get(op)
    if price is None:
        unknown = Work(None, None, None, None, bytes_read=read, bytes_written=written)
        pieces: tuple[Piece, ...] = (Piece(signature.op, "unknown", unknown),)
    else:
        pieces = price(seen)
        if op not in _PARTIAL:
            pieces = moved(pieces, bytes_read=read, bytes_written=written)
    return Priced(pieces, _format(signature, results))


def _bytes(signature: Signature, results: tuple[TensorMeta, ...]) -> tuple[int, int]:
    """Bytes of every distinct operand and every distinct result or operand written in place."""
    schema = signature.overload()._schema  # noqa: SLF001  # torch's only way to a schema
    arguments = signature.bound()
    unread = schema.arguments[0].name if signature.op.split(".")[1] in _UNREAD else ""
    read: dict[TensorMeta, int] = {}
    written = 0
    for argument in schema.arguments:
        value = arguments[argument.name]
        metas = [value] if isinstance(value, TensorMeta) else list(value[1:]) if isinstance(value, tuple) else []
        for meta in metas:
            if isinstance(meta, TensorMeta):
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
    overload_is_product = signature.op.split(".")[1] in {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "linear"}
    candidates = [*operands[-2:], *results] if overload_is_product else [*results, *operands]
    for meta in candidates:
        if meta.dtype.is_floating_point or meta.dtype.is_complex:
            return number_format(meta.dtype)
    return number_format(candidates[0].dtype) if candidates else number_format(torch.float32)
