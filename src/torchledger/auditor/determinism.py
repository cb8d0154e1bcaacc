"""`audit_determinism`: whether a step repeats bit for bit, the first operation that does not, and what could not.

Tables of the record:
    repeats      `trial`, `kind`, `same`, and where runs part: `number`, `operation`, `phase`, `module`, `source`,
                 `how`, `num_different`, `num_elements`, `largest`, `relative`; `loss_difference`, `num_operations`
    data         `trial`, `same`, `first_batch`, `parameter`, `num_batches`, `streams`
    random       operations that draw random numbers: `operation`, `module`, `phase`, `times`
    known        documented cases for the device: `what`, `device`, `mode`, `times`, `operation`, `module`, `source`
    losses       `step`, `loss`
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from torchledger.auditor.determinism_data import DataCheck, data_checks
from torchledger.auditor.determinism_findings import findings_of
from torchledger.auditor.determinism_known import Device, Found, known_in
from torchledger.auditor.determinism_repeat import Question, Repeat, compared, otherwise, repeated
from torchledger.auditor.determinism_run import Run, run, train_step
from torchledger.auditor.errors import AuditError
from torchledger.auditor.seeding import seed_everything
from torchledger.auditor.subject import Subject, left_as_it_was
from torchledger.ledger import AuditRecord


@dataclass(slots=True)
class _Progress:
    """Tells how far the audit is, where somebody listens."""

    listener: Callable[[int, int, str], None] | None
    total: int
    done: int = field(default=0)

    def __call__(self) -> None:
        self.done += 1
        if self.listener is not None:
            self.listener(min(self.done, self.total), self.total, "repeating the step")


def audit_determinism(
    subject: Subject,
    *,
    seed: int = 1337,
    steps: int = 2,
    repeats: int = 2,
    target: Device | None = None,
    elsewhere: Mapping[str, Run] | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> AuditRecord:
    """Run a few training steps again and again, and compare every operation bit for bit.

    Every run begins with the seeds of torch, NumPy and Python set together. It is repeated from the same state; made
    anew from its seed, where it can be; with memory that nobody has written filled with NaN; with another number of
    threads; and with another seed for each stream beside torch's that it draws from. The data is drawn again by itself.

    Args:
        subject: what to audit; left as it was.
        seed: of all streams.
        steps: of each run, each on its own batch where there is more than one.
        repeats: runs from the same state; a race does not show each time.
        target: the device whose documented list is matched; nothing is the one that the model stands on.
        elsewhere: the same run in other processes (`run_once` there), by what was otherwise with them.
        progress: called with (done, in all, what).

    Raises:
        AuditError: a step fails, or nothing is trained.
    """
    if steps < 1 or repeats < 2:
        raise AuditError(f"{steps} steps in {repeats} runs repeat nothing: at least 1 step and 2 runs are needed")
    tell = _Progress(progress, repeats + 2 + (subject.rebuild is not None))
    begun = time.perf_counter()
    question = Question(subject, seed, steps, repeats)
    first = question.run()
    audited_s = (time.perf_counter() - begun) / steps
    tell()
    tried = list(repeated(question, first, tell))
    if all(each.is_same for each in tried):
        tried += otherwise(question, first, tell)
        tried += [compared(name, "process", first, other) for name, other in (elsewhere or {}).items()]
    data = data_checks(subject, seed, steps)
    device: Device = target or ("cuda" if subject.device.type == "cuda" else "cpu")
    known = known_in(first.seen, device)
    return AuditRecord(
        audit="determinism",
        subject=subject.name,
        findings=findings_of(first, tried, data, (device, known)),
        facts=_facts(subject, first, seed, steps, len(tried) + 1),
        tables=_tables(first, tried, data, known, device),
        overhead={
            "plain_step_s": _plain_step_s(subject, seed),
            "audited_step_s": audited_s,
            "hashed_bytes": first.hashed_bytes // steps,
        },
        assumptions=tuple(_assumptions(subject)),
    )


def run_once(subject: Subject, *, seed: int = 1337, steps: int = 2) -> Run:
    """The first run of the audit by itself, for another process to compare with (`elsewhere`)."""
    return run(subject, seed, steps)


def _plain_step_s(subject: Subject, seed: int) -> float:
    with left_as_it_was(subject):
        seed_everything(seed)
        begun = time.perf_counter()
        train_step(subject).item()
        return time.perf_counter() - begun


def _facts(subject: Subject, first: Run, seed: int, steps: int, runs: int) -> dict[str, Any]:
    numpy = sys.modules.get("numpy")
    return {
        "num_steps": steps,
        "num_runs": runs,
        "num_operations": len(first.seen),
        "num_random_operations": len(first.drew),
        "final_loss": first.losses[-1],
        "final_hash": "unknown" if first.final_hash is None else f"{first.final_hash:016x}",
        "seed": {"torch": str(seed), "numpy": "" if numpy is None else str(seed % 2**32), "python": str(seed)},
        "device": str(subject.device),
        "num_threads": torch.get_num_threads(),
        "deterministic_mode": torch.are_deterministic_algorithms_enabled(),
        "torch": torch.__version__,
    }


def _tables(
    first: Run, tried: list[Repeat], data: tuple[DataCheck, ...], known: tuple[Found, ...], device: Device
) -> dict[str, tuple[Mapping[str, Any], ...]]:
    drawing: dict[tuple[str, str, str], int] = {}
    for number in first.drew:
        each = first.seen[number]
        drawing[each.op, each.module, each.phase] = drawing.get((each.op, each.module, each.phase), 0) + 1
    return {
        "repeats": tuple(_row(each, len(first.seen)) for each in tried),
        "data": tuple(
            {
                "trial": each.trial,
                "same": each.is_same,
                "first_batch": each.first_batch,
                "parameter": each.parameter,
                "num_batches": each.num_batches,
                "streams": each.streams,
            }
            for each in data
        ),
        "random": tuple(
            {"operation": op, "module": module, "phase": phase, "times": times}
            for (op, module, phase), times in drawing.items()
        ),
        "known": tuple(
            {
                "what": each.known.what,
                "device": device,
                "mode": each.known.mode,
                "times": each.times,
                "operation": each.first.op,
                "module": each.first.module,
                "source": each.known.source,
            }
            for each in known
        ),
        "losses": tuple({"step": step, "loss": loss} for step, loss in enumerate(first.losses)),
    }


def _row(each: Repeat, num_operations: int) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "trial": each.trial,
        "kind": each.kind,
        "same": each.is_same,
        "loss_difference": each.loss_difference,
        "num_operations": num_operations,
    }
    at = each.difference
    if at is not None:
        seen = at.seen
        row |= {
            "number": at.number, "operation": seen.op, "phase": seen.phase, "module": seen.module,
            "source": seen.source, "how": at.how, "num_operations": at.num_operations,
        }  # fmt: skip
        if at.apart is not None:
            row |= {
                "num_different": at.apart.num_different, "num_elements": at.apart.num_elements,
                "largest": at.apart.largest, "relative": at.apart.relative,
            }  # fmt: skip
    return row


def _assumptions(subject: Subject) -> Iterator[str]:
    yield "in every run memory that nobody has written is filled (with zeros, once with NaN), so that it hides nothing"
    if subject.rebuild is None:
        yield "weights and data were restored and not made anew: how they are made was not audited"
    if subject.batches is None:
        yield "every step takes the same batch: there is no order of data to audit"
    if subject.device.type == "cpu":
        yield "it ran on the CPU: what a GPU's kernels do is told by torch's own list, and not tried"
