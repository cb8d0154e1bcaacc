"""What an operation call costs: its pieces from `ops`, its bytes from the tensors themselves."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from torchledger.ledger import Work
from torchledger.ops import Piece, moved
from torchledger.tracer.pricing import (  # noqa: F401  # importing them enters their prices
    attention,
    collective,
    contraction,
    convolution,
    elementary,
    elements,
    factorizations,
    fused_loss,
    losses,
    narrow,
    norms,
    optimizers,
    orders,
    pools,
    quantized,
    rearranged,
    recurrent,
    reductions,
    resampling,
    rows,
    sparse,
    stored,
    tables,
)
from torchledger.tracer.pricing.bound import most_it_could_cost
from torchledger.tracer.pricing.narrow import FORMATS, IN_FIRST_FORMAT
from torchledger.tracer.pricing.seen import Price, Seen, price_for
from torchledger.tracer.pricing.stored import is_sparse
from torchledger.tracer.pricing.touched import FREE, PARTIAL, bytes_moved
from torchledger.tracer.pricing.untold import untold, why
from torchledger.tracer.signature import Signature, TensorMeta, number_format


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
    if op in FREE and namespace in {"aten", "prims"}:
        return Priced((), "")
    if namespace == "higher_order":
        return _higher_order(op, signature, results)
    seen = Seen(op, signature.bound(), results, signature.needed)
    read, written = bytes_moved(signature, results)
    price = price_for(namespace, op)
    if price is None:
        pieces: tuple[Piece, ...] = (_unknown(signature.op, signature, results, read, written),)
        seen.assumptions.extend(f"{op} has no count: {reason}" for reason in (why(op),) if reason)
    else:
        pieces = _pieces(price, seen)
        if any(piece.kind == "unknown" for piece in pieces):
            pieces = (_unknown(signature.op, signature, results, read, written),)
        if op not in PARTIAL and not any(piece.kind == "collective" for piece in pieces):
            pieces = moved(pieces, bytes_read=read, bytes_written=written)
    return Priced(pieces, _format(signature, results), tuple(seen.assumptions))


def _pieces(price: Price, seen: Seen) -> tuple[Piece, ...]:
    """What the price says; of an empty tensor's sums, whose n - 1 adds are none, nothing."""
    try:
        pieces = price(seen)
    except AssertionError:
        if not is_sparse(seen):
            raise
        return untold(seen, f"{seen.op} has a count for plain tensors only")
    none = dict.fromkeys(("flops_full", "flops_exact", "flops_executed"), 0)
    return tuple(
        replace(piece, work=replace(piece.work, **none)) if (piece.work.flops_full or 0) < 0 else piece
        for piece in pieces
    )


def _higher_order(op: str, signature: Signature, results: tuple[TensorMeta, ...]) -> Priced:
    read, written = sum(meta.num_bytes for meta in signature.tensors()), sum(meta.num_bytes for meta in results)
    assumptions: list[str] = []
    if op in {"flex_attention", "flex_attention_backward"}:
        from torchledger.tracer.pricing.flex import flex_attention  # loads the compiler, half a second

        pieces = flex_attention(signature, backward=op.endswith("backward"), assumptions=assumptions)
        pieces = moved(pieces, bytes_read=read, bytes_written=written)
    else:
        pieces = (_unknown(op, signature, results, read, written),)
    return Priced(pieces, _format(signature, results), tuple(assumptions))


def _unknown(op: str, signature: Signature, results: tuple[TensorMeta, ...], read: int, written: int) -> Piece:
    work = Work(None, None, None, None, bytes_read=read, bytes_written=written)
    known = dict(signature.kwargs) if signature.op.startswith("higher_order.while_loop") else {}
    told = tuple(known.items()) or (("at_most_flops", most_it_could_cost(signature, results)),)
    return Piece(op, "unknown", work, told)


def _format(signature: Signature, results: tuple[TensorMeta, ...]) -> str:
    """Format of a contraction's operands and of anything else's result; integers only where nothing is floating."""
    operands = signature.tensors()
    op = signature.op.split(".")[1]
    if op in FORMATS and not signature.op.startswith("aten.linear"):
        return FORMATS[op]
    if op in IN_FIRST_FORMAT:  # one unit multiplies both formats of FP8, also one with the other: peaks are of `fp8`
        name = number_format(operands[0].dtype)
        return "fp8" if name.startswith("fp8_") else name
    overload_is_product = op in {"mm", "bmm", "addmm", "baddbmm", "mv", "dot", "linear"}
    candidates = [*operands[-2:], *results] if overload_is_product else [*results, *operands]
    for meta in candidates:
        if meta.dtype.is_floating_point or meta.dtype.is_complex:
            return number_format(meta.dtype)
    return number_format(candidates[0].dtype) if candidates else number_format(torch.float32)
