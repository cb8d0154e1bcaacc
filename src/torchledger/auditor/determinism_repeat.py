"""Runs that have to be the same, and runs in which something is otherwise that should not matter."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import torch

from torchledger.auditor.determinism_difference import Difference, first_difference, looked_into
from torchledger.auditor.determinism_run import Run, run
from torchledger.auditor.determinism_watch import EMPTY
from torchledger.auditor.errors import AuditError
from torchledger.auditor.seeding import STREAMS, Stream, seed_everything
from torchledger.auditor.subject import Subject
from torchledger.tracer.undisturbed import undisturbed

NAMES: Mapping[Stream, str] = {"torch": "torch", "numpy": "NumPy", "python": "Python's random"}
_EMPTY = frozenset(map(str, EMPTY))


@dataclass(frozen=True, slots=True)
class Question:
    """What is run.

    Attributes:
        subject: what is audited.
        seed: of every global stream.
        steps: of each run.
        repeats: runs from the same state.
    """

    subject: Subject
    seed: int
    steps: int
    repeats: int

    def run(
        self,
        *,
        fill: float = 0.0,
        capture: int | None = None,
        threads: int | None = None,
        others: Mapping[str, int] | None = None,
    ) -> Run:
        """A run from the subject's own state; arguments as `determinism_run.run` has them."""
        return run(self.subject, self.seed, self.steps, fill=fill, capture=capture, threads=threads, others=others)

    def run_anew(self, capture: int | None = None) -> Run:
        """A run of the subject made anew from the seed."""
        assert self.subject.rebuild is not None, "only what can be made anew is asked for"
        with undisturbed():
            seed_everything(self.seed)
            made = self.subject.rebuild(self.seed)
        return run(made, self.seed, self.steps, capture=capture)


@dataclass(frozen=True, slots=True)
class Repeat:
    """One more run, beside the first.

    Attributes:
        trial: what was done otherwise, in words.
        kind: `restored`, `rebuilt`, `filled`, `threads`, `stream` or `process`.
        difference: where its operations part from the first run's; nothing where none does.
        begins: the first parameter or buffer that began with another value.
        batch: number of the first batch that was another one.
        failed: what a step said that ended the run.
        loss_difference: of the last loss, absolute; nothing where it is no number.
        ends_alike: whether losses, weights and gradients were the same at the end.
    """

    trial: str
    kind: str
    difference: Difference | None = None
    begins: str = ""
    batch: int | None = None
    failed: str = ""
    loss_difference: float | None = None
    ends_alike: bool = True

    @property
    def is_same(self) -> bool:
        """Whether it was the same run again."""
        return self.difference is None and not self.begins and self.batch is None and not self.failed


def repeated(question: Question, first: Run, tell: Callable[[], None]) -> Iterator[Repeat]:
    """Runs that have to be the same: from the same state, and made anew from the same seed."""

    def again(capture: int | None = None) -> Run:
        return question.run(capture=capture)

    for number in range(2, question.repeats + 1):
        found = compared(f"again from the same state (run {number})", "restored", first, again())
        tell()
        if found.difference is not None:
            found = replace(found, difference=looked_into(found.difference, again, again))
        yield found
        if not found.is_same:
            return
    if question.subject.rebuild is None:
        return
    one = question.run_anew()
    found = compared("made anew from the seed", "rebuilt", first, one)
    if not found.is_same:  # the subject may have been trained, or be of another seed: two that were made anew count
        found = compared("made anew from the seed", "rebuilt", one, question.run_anew())
        if found.difference is not None:
            found = replace(found, difference=looked_into(found.difference, question.run_anew, question.run_anew))
    tell()
    yield found


def otherwise(question: Question, first: Run, tell: Callable[[], None]) -> Iterator[Repeat]:
    """Runs in which something is otherwise that should not matter."""
    if any(each.op in _EMPTY for each in first.seen):
        trial = "memory that nobody has written filled with NaN"
        try:
            found = compared(trial, "filled", first, question.run(fill=math.nan))
        except AuditError as error:
            found = Repeat(trial, "filled", failed=str(error))
        yield (
            found if found.failed or not found.ends_alike else replace(found, difference=None)
        )  # what is never used may hold anything
    tell()
    if question.subject.device.type == "cpu":
        threads = torch.get_num_threads()
        others = 1 if threads > 1 else 2
        trial = f"with {others} thread{'s' if others > 1 else ''} instead of {threads}"
        yield compared(trial, "threads", first, question.run(threads=others))
    tell()
    for stream in STREAMS:
        if stream != "torch" and stream in first.streams:
            other = question.run(others={stream: question.seed + 1})
            yield compared(f"with another seed for {NAMES[stream]}", "stream", first, other)


def compared(trial: str, kind: str, first: Run, other: Run) -> Repeat:
    """Two runs beside each other: how they begin, their data, their operations, the last loss."""
    begins = next((name for name, found in first.initial.items() if other.initial.get(name) != found), "")
    batch = next((n for n, (a, b) in enumerate(zip(first.data, other.data, strict=True)) if a != b), None)
    difference = None if begins or batch is not None else first_difference(first, other)
    gap = abs(first.losses[-1] - other.losses[-1])
    alike = tuple(map(float.hex, first.losses)) == tuple(map(float.hex, other.losses))
    alike = alike and first.final_hash == other.final_hash
    far = 0.0 if alike else gap if math.isfinite(gap) else None
    return Repeat(trial, kind, difference, begins, batch, "", far, alike)
