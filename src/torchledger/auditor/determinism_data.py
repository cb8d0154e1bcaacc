"""Whether data and first weights come again: drawn twice, made anew, after other draws, with other seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from torch.utils.data import DataLoader

from torchledger.auditor.determinism_hash import hash_of
from torchledger.auditor.determinism_run import weights
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
        parameter: the first parameter or buffer that began with other values.
    """

    trial: Trial
    first_batch: int | None
    num_batches: int
    streams: tuple[Stream, ...] = ()
    num_workers: int = 0
    told: str = ""
    parameter: str = ""

    @property
    def is_same(self) -> bool:
        """Whether nothing differed."""
        return self.first_batch is None and not self.parameter


@dataclass(frozen=True, slots=True)
class _Begin:
    """What happens as a loader is begun: draws from global streams before it, and no worker processes."""

    draws: tuple[Stream, ...] = ()
    in_one_process: bool = False


_BEGIN: ContextVar[_Begin] = ContextVar("_BEGIN", default=_Begin())  # noqa: B039  # frozen, holding tuples alone


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
            begin = _BEGIN.get()
            if begin.in_one_process and isinstance(self.loader, DataLoader):
                self.loader.num_workers, self.loader.prefetch_factor = 0, None
            draw_from(*begin.draws)
            self._iterator = iter(self.loader)
        while len(self._batches) <= n:
            try:
                self._batches.append(next(self._iterator))
            except StopIteration:
                raise AuditError(
                    f"the data has {len(self._batches)} batches, and number {n} was asked for: take fewer steps"
                ) from None
        return self._batches[n]


@dataclass(frozen=True, slots=True)
class _Made:
    """What a rebuild makes.

    Attributes:
        weights: a hash of each parameter and buffer.
        data: hashes of the first batches.
        loader: what the data comes from.
    """

    weights: Mapping[str, int | None]
    data: list[str]
    loader: Any

    def batch(self, other: _Made) -> int | None:
        """The first batch that is another one."""
        return _first(self.data, other.data)

    def parameter(self, other: _Made) -> str:
        """The first parameter or buffer that begins with other values."""
        return next((name for name, found in self.weights.items() if other.weights.get(name) != found), "")


def data_checks(subject: Subject, seed: int, num_batches: int) -> tuple[DataCheck, ...]:
    """Compare the subject's first batches, and the weights it begins with, made in other ways. No model runs.

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
        told = _told(getattr(subject.batches, "loader", None))
        checks.append(DataCheck("again", _first(first, again), num_batches, told=told))
    if subject.rebuild is not None:
        with undisturbed():
            checks += _made_anew(_Making(subject.rebuild, seed, num_batches))
    return tuple(checks)


@dataclass(frozen=True, slots=True)
class _Making:
    """How the subject is made anew."""

    rebuild: Callable[[int], Subject]
    seed: int
    num_batches: int

    def __call__(
        self,
        *,
        draws: tuple[Stream, ...] = (),
        seeds: tuple[Stream, ...] = (),
        in_one_process: bool = False,
    ) -> _Made:
        """Make it, with draws from some global streams before its data, and another seed for some before all."""
        seed_everything(self.seed, **dict.fromkeys(seeds, self.seed + 1))
        token = _BEGIN.set(_Begin(draws, in_one_process))
        try:
            subject = self.rebuild(self.seed)
            found = weights(subject)
            draw_from(*draws)
            data = (
                [hash_of(subject.batch)] * self.num_batches
                if subject.batches is None
                else _drawn(subject.batches, range(self.num_batches))
            )
        finally:
            _BEGIN.reset(token)
        return _Made(found, data, getattr(subject.batches, "loader", None))


def _made_anew(make: _Making) -> Iterator[DataCheck]:
    one = make()
    # All at once, for making a model takes long: what is the same in spite of all is the same in spite of each.
    two = make(seeds=STREAMS, draws=STREAMS)
    told = _told(one.loader)
    trials: tuple[Trial, ...] = ("rebuilt", "after other draws", "another seed")
    if one.batch(two) is None and not one.parameter(two):
        yield from (DataCheck(trial, None, make.num_batches, told=told) for trial in trials)
    else:
        other = make()
        repeats = one.batch(other) is None and not one.parameter(other)
        yield DataCheck("rebuilt", one.batch(other), make.num_batches, told=told, parameter=one.parameter(other))
        if not repeats:
            return  # what does not repeat by itself hangs on nothing that can be named
        yield _hangs_on("after other draws", one, {each: make(draws=(each,)) for each in STREAMS}, told)
        yield _hangs_on("another seed", one, {each: make(seeds=(each,)) for each in STREAMS}, told)
    workers = getattr(one.loader, "num_workers", 0)
    if workers:
        batch = one.batch(make(in_one_process=True))
        yield DataCheck("workers", batch, make.num_batches, (), workers, told)


def _hangs_on(trial: Trial, one: _Made, by_stream: Mapping[Stream, _Made], told: str) -> DataCheck:
    """The first batch and parameter that differ when one global stream stands elsewhere, and which streams do it."""
    batches = {stream: one.batch(made) for stream, made in by_stream.items()}
    parameters = {stream: one.parameter(made) for stream, made in by_stream.items()}
    streams = tuple(each for each in STREAMS if batches[each] is not None or parameters[each])
    first = min((n for n in batches.values() if n is not None), default=None)
    parameter = next((name for name in parameters.values() if name), "")
    return DataCheck(trial, first, len(one.data), streams, told=told, parameter=parameter)


def _drawn(batches: Callable[[int], Any], numbers: Iterable[int]) -> list[str]:
    return [hash_of(batches(n)) for n in numbers]


def _first(ones: list[str], others: list[str]) -> int | None:
    return next((n for n, (a, b) in enumerate(zip(ones, others, strict=True)) if a != b), None)


def _told(loader: Any) -> str:
    if not isinstance(loader, DataLoader):
        return "batches" if loader is None else type(loader).__name__
    sampler = type(loader.sampler).__name__
    seeded = "its own generator" if loader.generator is not None else "no generator of its own"
    return f"DataLoader({type(loader.dataset).__name__}) with {sampler}, {seeded}, {loader.num_workers} workers"
