"""The audit of copies: which operations of a training step return views and which copy, and which need not have."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from torchledger.auditor.copies_findings import findings_of
from torchledger.auditor.copies_found import (
    Copy,
    KernelCopy,
    copies_of,
    kernel_copies_of,
    rows_of,
    share_of,
    total_moved,
)
from torchledger.auditor.copies_kind import MEANINGS
from torchledger.auditor.copies_seen import seen_step
from torchledger.auditor.errors import AuditError
from torchledger.auditor.subject import Subject
from torchledger.ledger import AuditRecord, fold_path
from torchledger.tracer import TraceError


def audit_copies(subject: Subject) -> AuditRecord:
    """Look at a training step of the subject and tell what it copies.

    The step is traced: it runs on fake tensors, takes no memory, and the subject is not touched. Where it needs values
    it runs on the subject itself, which is put back (the assumptions say so).

    A copy is *avoidable* where every operation that reads it, forward and backward, takes the original as it lies, by
    the geometry of what it reads (`formats.strides.carried`) and what is known of kernels (`copies_accepted`). Only
    what the user wrote can be a warning; what autocast, a product or a gradient needs is told as a fact or a note.

    Returns:
        Facts: `step_bytes` (read and written by all operations), `copied_bytes` (made by copies), `moved_bytes` (read
        and written by them), `moved_share`, `avoidable_bytes` (moved by copies that could be left out), `num_copies`,
        `num_views`, `moved_bytes_by_kind`. Tables: `copies` (columns in `copies_found.rows_of`), `views` (`op`,
        `times`), `kernels` (operands that kernels copy inside: `source`, `module`, `op`, `phase`, `shape`, `stride`,
        `times`, `copied_bytes`; none of these bytes are in the facts).

    Raises:
        AuditError: the step cannot be looked at; says why.
    """
    begun = time.perf_counter()
    try:
        step = seen_step(subject)
    except TraceError as error:
        raise AuditError(f"{subject.name}: {error}") from error
    copies, kernels = copies_of(step), kernel_copies_of(step)
    step_bytes = step.trace.ledger.total.bytes_moved
    return AuditRecord(
        "copies",
        subject.name,
        findings_of(step, copies, kernels, step_bytes),
        {**_facts(copies, step_bytes), "num_views": sum(step.views.values())},
        {
            "copies": rows_of(copies, step_bytes),
            "views": tuple({"op": op, "times": times} for op, times in step.views.items()),
            "kernels": _kernel_rows(kernels),
        },
        {"audit_s": time.perf_counter() - begun},
        step.assumptions,
    )


def _facts(copies: tuple[Copy, ...], step_bytes: int | None) -> dict[str, Any]:
    moved = total_moved(copies)
    too_many = [each for each in copies if each.is_asked_for and each.verdict.judgement in {"avoidable", "unused"}]
    by_kind = {kind: [each for each in copies if each.kind == kind] for kind in MEANINGS}
    return {
        "step_bytes": step_bytes,
        "copied_bytes": sum(each.copied_bytes for each in copies),
        "moved_bytes": moved,
        "moved_share": share_of(moved, step_bytes),
        "avoidable_bytes": total_moved(too_many),
        "num_copies": len(copies),
        "moved_bytes_by_kind": {kind: total_moved(group) for kind, group in by_kind.items() if group},
    }


def _kernel_rows(kernels: Iterable[KernelCopy]) -> tuple[Mapping[str, Any], ...]:
    rows: dict[Any, dict[str, Any]] = {}
    for each in kernels:
        call, meta = each.seen.call, each.seen.operands[each.operand].meta
        place = {
            "source": call.source,
            "module": fold_path(call.module),
            "op": each.seen.op,
            "phase": call.phase,
            "shape": meta.shape,
            "stride": meta.stride,
        }
        row = rows.setdefault(tuple(place.values()), {**place, "times": 0, "copied_bytes": 0})
        row["times"] += 1
        row["copied_bytes"] += each.copied_bytes
    return tuple(sorted(rows.values(), key=lambda row: -row["copied_bytes"]))
