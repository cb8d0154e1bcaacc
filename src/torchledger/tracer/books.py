"""From recorded calls to a `Ledger`: each distinct call priced once, equal lines entered once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from torchledger.ledger import CONTRACTIONS, Kind, Ledger, Line, Work
from torchledger.ops import Piece
from torchledger.tracer.call import Call
from torchledger.tracer.pricing import Priced, price
from torchledger.tracer.signature import Signature, TensorMeta

# In the optimizer's phase arithmetic is the optimizer's, whether it runs as one kernel or as a hundred.
_OPTIMIZER_KINDS = frozenset({"pointwise", "reduction", "copy"})


def ledger_of(
    calls: Iterable[tuple[int, Call]],
    results: Mapping[Signature, tuple[TensorMeta, ...]],
    kept: Mapping[int, int],
    assumptions: Iterable[str],
) -> Ledger:
    """The lines of some calls.

    Args:
        calls: calls with their indices.
        results: what a call of each signature returned.
        kept: bytes of new storage that a call left alive for the backward pass, by the call's index.
        assumptions: what was assumed on the way.
    """
    priced: dict[int, Priced] = {}
    groups: dict[tuple[Call, int], int] = {}
    firsts: dict[tuple[object, ...], tuple[Call, int]] = {}
    for index, call in calls:
        bytes_kept = kept.get(index, 0)
        place = (
            id(call.signature), call.module, call.phase, call.gradient_of, call.kind, call.source, call.visible,
            bytes_kept,
        )  # fmt: skip
        group = firsts.setdefault(place, (call, bytes_kept))
        groups[group] = groups.get(group, 0) + 1
    lines: list[Line] = []
    assumed = list(assumptions)
    for (call, bytes_kept), times in groups.items():
        known = priced.get(id(call.signature))
        if known is None:
            known = priced[id(call.signature)] = price(call.signature, results[call.signature])
            assumed.extend(known.assumptions)
        lines.extend(_lines(call, known, bytes_kept, times))
    return Ledger.of(lines, assumptions=assumed)


def _lines(call: Call, priced: Priced, bytes_kept: int, times: int) -> Iterable[Line]:
    pieces = priced.pieces
    if not pieces and bytes_kept:
        # Memory that nothing has written yet, and is kept: the line carries the bytes alone.
        pieces = (Piece(call.signature.op.split(".")[1], "copy", Work()),)
    for number, plain in enumerate(pieces):
        piece = _masked(plain, call)
        is_product = piece.kind in CONTRACTIONS
        line = replace(
            piece.line(
                call.module,
                phase=call.phase,  # type: ignore[arg-type]  # phases of lines are a step's own, "build" is left out above
                gradient_of=call.gradient_of if is_product and call.gradient_of != "none" else None,
                number_format=priced.number_format,
                times=times,
                origin="trace",
                source=call.source,
                bytes_kept=bytes_kept if number == 0 else None,
            ),
            kind=_kind(piece.kind, call),
        )
        yield _communication(line) if line.kind == "collective" else line


def _communication(line: Line) -> Line:
    """A collective's line: its phase is communication, and its operation tells what asked for it."""
    return replace(line, phase="communication", op=f"{line.op} ({line.phase})")


def _masked(piece: Piece, call: Call) -> Piece:
    """The piece with attention's exact FLOPs: by what its module says of its mask, unknown where nothing is said.

    A mask is data, and a trace has none; only the kernel's own causality is seen.
    """
    is_attention = piece.kind == "attention" or (piece.kind == "matmul" and call.kind == "attention")
    if not is_attention or (call.visible is None and piece.kind == "attention"):
        return piece
    exact = None
    if call.visible is not None:
        visible, pairs = call.visible
        exact = piece.work.flops_full * visible // pairs
    return replace(piece, work=replace(piece.work, flops_exact=exact))


def _kind(kind: Kind, call: Call) -> Kind:
    if kind == "matmul" and call.kind:
        return call.kind  # type: ignore[return-value]  # a module's `ledger_kind` is one of the kinds
    if call.phase == "optimizer" and kind == "matmul":
        return "linalg"  # an update's own algebra (Muon), which is none of the model's
    if call.phase == "optimizer" and kind in _OPTIMIZER_KINDS:
        return "optimizer"
    return kind
