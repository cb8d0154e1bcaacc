"""Streams of an accelerator that is not there: every allocation is told on which one it stands.

The caching allocator keeps a pool of free memory a stream, so memory freed on one is not used again on another.
FSDP gathers and reduces on streams of its own (`FSDPCommContext.lazy_init` in torch/distributed/fsdp/_fully_shard/
_fsdp_param_group.py); on the CPU torch's streams are empty shells, which is where these stand in.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchledger.tracer.storages import Storages

#: Attributes of FSDP's communication context that hold its streams.
_OF_FSDP = ("all_gather_copy_in_stream", "all_gather_stream", "reduce_scatter_stream", "all_reduce_stream")
_numbers = itertools.count(1)


class Stream:
    """A stream: a name, and nothing that would have to wait.

    Args:
        priority: what the caller wants.
        name: "" for the default stream.
    """

    def __init__(self, priority: int = 0, name: str | None = None) -> None:
        self.priority = priority
        self.name = f"stream {next(_numbers)}" if name is None else name

    def wait_stream(self, stream: object) -> None:
        """Nothing runs, so nothing waits."""

    def wait_event(self, event: object) -> None:
        """Nothing runs, so nothing waits."""

    def record_event(self, event: object = None) -> object:
        """An event that has happened."""
        return torch.cpu.Event() if event is None else event

    def synchronize(self) -> None:
        """Nothing runs, so nothing waits."""


class Streams:
    """The stream that is current, told to whoever writes allocations down."""

    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self._running = [Stream(name="")]

    def current_stream(self, _device: object = None) -> Stream:
        """The stream that operations run on now."""
        return self._running[-1]

    @contextlib.contextmanager
    def stream(self, stream: Stream | None) -> Iterator[None]:
        """While this is on, operations run on that stream; on the same one as before where it is nothing."""
        self._running.append(self._running[-1] if stream is None else stream)
        self._storages.stream = self._running[-1].name
        try:
            yield
        finally:
            self._running.pop()
            self._storages.stream = self._running[-1].name


def patches(storages: Storages, context: type) -> Iterator[tuple[Any, str, Callable[[Any], Any]]]:
    """What stands in for torch's streams of the CPU, and gives FSDP's (of class `context`) their names."""
    streams = Streams(storages)
    yield torch.cpu, "Stream", lambda _: Stream
    yield torch.cpu, "stream", lambda _: streams.stream
    yield torch.cpu, "current_stream", lambda _: streams.current_stream
    yield context, "lazy_init", _named


def _named(lazy_init: Callable[..., None]) -> Callable[..., None]:
    def initialised(context: Any, *args: Any, **kwargs: Any) -> None:
        lazy_init(context, *args, **kwargs)
        for attribute in _OF_FSDP:
            getattr(context, attribute).name = attribute.removesuffix("_stream").replace("_", " ")

    return initialised
