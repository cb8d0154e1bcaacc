"""The CPU allocator's truth: every allocation and free that torch's own profiler sees, summed up.

The profiler hooks the allocator itself, so kernel scratch is in it, and nothing that runs is changed. Memory that a
library takes past torch's allocator is not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Allocations(Generic[Result]):
    """What the allocator did while a function ran.

    Attributes:
        result: what the function returned.
        peak_bytes: most bytes alive at once, of those allocated inside.
        end_bytes: bytes still alive at the end, of those allocated inside.
        num_allocations: how many allocations there were.
        curve: (seconds since the first event, bytes alive) after every event.
    """

    result: Result
    peak_bytes: int
    end_bytes: int
    num_allocations: int
    curve: tuple[tuple[float, int], ...]


def allocations(run: Callable[[], Result]) -> Allocations[Result]:
    """Run a function and report what torch's CPU allocator did meanwhile.

    Frees of memory that was allocated before the window are not counted, so the peak is that of the function's own
    allocations.
    """
    with profiling() as session:
        result = run()
    return _summed(result, allocation_events(session))


def allocation_events(session: profile) -> list[tuple[int, int, int]]:
    """(time in nanoseconds, address, signed bytes) of every CPU allocation event of a profile, in order of time."""
    events = []
    for event in walk(session):
        if event.tag == torch._C._profiler._EventType.Allocation and event.extra_fields.device.type == "cpu":  # noqa: SLF001  # the profiler's only door to single allocations
            fields = event.extra_fields
            events.append((event.start_time_ns, fields.ptr, fields.alloc_size))
    events.sort(key=lambda event: event[0])
    return events


def walk(session: profile) -> Iterator[Any]:
    """Every event of a profile's tree, parents before children."""
    results = session.profiler.kineto_results if session.profiler is not None else None
    assert results is not None, "the profile has ended, so it has results"
    waiting = list(reversed(results.experimental_event_tree()))
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.children))


@contextlib.contextmanager
def profiling() -> Iterator[profile]:
    """A profile of CPU operations and allocations, readable once the block has ended."""
    session = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with quiet():
        session.start()
    try:
        yield session
    finally:
        with quiet():
            session.stop()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Hold back the lines that torch 2.13's profiler writes to standard error when it starts and stops.

    A counter never prints. Everything else that is written meanwhile is passed on.
    """
    sys.stderr.flush()
    with tempfile.TemporaryFile() as held:
        saved = os.dup(2)
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            held.seek(0)
            rest = b"".join(line for line in held if not line.startswith(b"USDT:"))
            if rest:
                os.write(2, rest)


def _summed(result: Result, events: list[tuple[int, int, int]]) -> Allocations[Result]:
    alive: set[int] = set()
    live_bytes = peak_bytes = count = 0
    curve = []
    start = events[0][0] if events else 0
    for time_ns, address, size in events:
        if size > 0:
            alive.add(address)
            count += 1
        elif address in alive:
            alive.discard(address)
        else:
            continue
        live_bytes += size
        peak_bytes = max(peak_bytes, live_bytes)
        curve.append(((time_ns - start) / 1e9, live_bytes))
    return Allocations(result, peak_bytes, live_bytes, count, tuple(curve))
