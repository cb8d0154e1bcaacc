"""Whether the data comes in the same order again: batches drawn twice, from a fresh rebuild, after other draws."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch.utils.data import DataLoader

from torchledger.auditor.determinism_hash import hash_of
from torchledger.auditor.errors import AuditError
from torchledger.auditor.seeding import STREAMS, Stream, draw_from, seed_everything
from torchledger.auditor.subject import Subject, left_as_it_was
from torchledger.tracer.undisturbed import undisturbed

#: What was tried: batches asked for again in another order; a fresh rebuild with the same seeds; one where numbers were
#: drawn in between from every global stream; one where a stream had another seed; one without worker processes.
Trial: TypeAlias = Literal["again", "rebuilt", "after other draws", "another seed", "workers"]


@dataclass(frozen=True, slots=True)
class DataCheck:
    """One trial.

    Attributes:
        trial: what was tried.
        first_batch: number of the first batch that was another one; nothing where all were the same.
        num_batches: how many were compared.
        streams: the global random streams that the difference hangs on, where one alone makes it.
        num_workers: worker processes of the loader, for `workers`.
        told: what the loader is, for a reader.
    """

    trial: Trial
    first_batch: int | None
    num_batches: int
    streams: tuple[Stream, ...] = ()
    num_workers: int = 0
    told: str = ""


class InOrder:
    """Batch n of something that can only be gone through in order, a `DataLoader` for one: kept as they come.

    Args:
        loader: what is gone through, once; begun when the first batch is asked for.
    """

    def __init__(self, loader: Iterable[Any]) -> None:
        self.loader = loader
        self._iterator: Iterator[Any] | None = None
        self._batches: list[Any] = []

    def __call__(self, n: int) -> Any:
        """Batch n.

        Raises:
            AuditError: there are not so many.
        """
        if self._iterator is None:
            self._iterator = iter(self.loader)
        while len(self._batches) <= n:
            try:
                self._batches.append(next(self._iterator))
            except StopIteration:
                raise AuditError(
                    f"the data has {len(self._batches)} batches, and number {n} was asked for: take fewer steps"
                ) from None
        return self._batches[n]


def data_checks(subject: Subject, seed: int, num_batches: int) -> tuple[DataCheck, ...]:
    """Compare the subject's first batches with themselves, drawn in other ways. No model runs.

    Args:
        subject: with `batches`, `rebuild` or both; with neither there is nothing to compare.
        seed: of the rebuild and of every global stream.
        num_batches: how many.
    """
    checks = []
    if subject.batches is not None:
        with left_as_it_was(subject):
            seed_everything(seed)
            first = _drawn(subject.batches, range(num_batches))
            draw_from(*STREAMS)
            again = _drawn(subject.batches, range(num_batches)[::-1])[::-1]
        checks.append(DataCheck("again", _first(first, again), num_batches, told=_told(subject)))
    if subject.rebuild is None:
        return tuple(checks)
    with undisturbed():
        one = _rebuilt(subject.rebuild, seed, num_batches)
        other = _rebuilt(subject.rebuild, seed, num_batches)
        told = _told(subject)
        checks.append(DataCheck("rebuilt", _first(one, other), num_batches, told=told))
        if checks[-1].first_batch is not None:
            return tuple(checks)  # what does not repeat by itself hangs on nothing that can be named
        for trial in ("after other draws", "another seed"):
            found, streams = _hangs_on(subject.rebuild, seed, num_batches, one, draws=trial == "after other draws")
            checks.append(DataCheck(trial, found, num_batches, streams, told=told))
        workers = _workers(subject)
        if workers:
            alone = _rebuilt(subject.rebuild, seed, num_batches, in_one_process=True)
            checks.append(DataCheck("workers", _first(one, alone), num_batches, (), workers, told))
    return tuple(checks)


def _hangs_on(
    rebuild: Callable[[int], Subject], seed: int, num_batches: int, one: list[str], *, draws: bool
) -> tuple[int | None, tuple[Stream, ...]]:
    """The first batch that differs when the global streams stand elsewhere, and which stream alone makes it differ."""

    def first(*streams: Stream) -> int | None:
        others = {} if draws else dict.fromkeys(streams, seed + 1)
        return _first(one, _rebuilt(rebuild, seed, num_batches, draws=streams if draws else (), others=others))

    found = first(*STREAMS)
    if found is None:
        return None, ()
    return found, tuple(stream for stream in STREAMS if first(stream) is not None)


def _rebuilt(
    rebuild: Callable[[int], Subject],
    seed: int,
    num_batches: int,
    *,
    draws: tuple[Stream, ...] = (),
    others: dict[Stream, int] | None = None,
    in_one_process: bool = False,
) -> list[str]:
    """Hashes of the first batches of the subject made anew."""
    seed_everything(seed, **(others or {}))
    subject = rebuild(seed)
    draw_from(*draws)
    if subject.batches is None:
        return [hash_of(subject.batch)] * num_batches
    loader = getattr(subject.batches, "loader", None)
    if in_one_process and isinstance(loader, DataLoader):
        loader.num_workers, loader.prefetch_factor = 0, None
    return _drawn(subject.batches, range(num_batches))


def _drawn(batches: Callable[[int], Any], numbers: Iterable[int]) -> list[str]:
    return [hash_of(batches(n)) for n in numbers]


def _first(ones: list[str], others: list[str]) -> int | None:
    return next((n for n, (a, b) in enumerate(zip(ones, others, strict=True)) if a != b), None)


def _workers(subject: Subject) -> int:
    return int(getattr(getattr(subject.batches, "loader", None), "num_workers", 0))


def _told(subject: Subject) -> str:
    loader = getattr(subject.batches, "loader", None)
    if not isinstance(loader, DataLoader):
        return "batches" if loader is None else type(loader).__name__
    sampler = type(loader.sampler).__name__
    seeded = "its own generator" if loader.generator is not None else "no generator of its own"
    return f"DataLoader({type(loader.dataset).__name__}) with {sampler}, {seeded}, {loader.num_workers} workers"
