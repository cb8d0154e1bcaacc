"""`torch.cuda` of one GPU that is not there: what a step asks of it is answered, what it orders is done by no one."""

from __future__ import annotations

import contextlib
import itertools
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from torchledger.tracer.storages import Storages
from torchledger.tracer.targets.cuda.replacing import replaced

#: Streams are named by the order in which they are made.
_NUMBERS = itertools.count(1)


class Stream:
    """A stream of the absent GPU: a name, under which what is allocated while it is current is written down."""

    def __init__(self, device: Any = None, priority: int = 0, *, name: str = "", **_: Any) -> None:
        self.device = device
        self.priority = priority
        self.name = name or f"stream {next(_NUMBERS)}"

    def __getattr__(self, name: str) -> Any:
        if name in {"wait_stream", "wait_event", "synchronize", "query", "record_event"}:
            return lambda *_args, **_kwargs: True
        raise AttributeError(name)


class Event:
    """An event of the absent GPU. No time passes between two of them."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None:
        pass

    def elapsed_time(self, _end: Any) -> float:
        """No time: nothing runs."""
        return 0.0

    def __getattr__(self, name: str) -> Any:
        if name in {"record", "wait", "synchronize", "query"}:
            return lambda *_args, **_kwargs: True
        raise AttributeError(name)


@contextlib.contextmanager
def cuda_present(storages: Storages, *, capability: tuple[int, int], name: str, num_bytes: int) -> Iterator[None]:
    """While this is on, `torch.cuda` answers as with one GPU.

    Args:
        storages: the step's memory: what is allocated inside `torch.cuda.stream(...)` gets that stream's name.
        capability: compute capability.
        name: what the GPU calls itself.
        num_bytes: memory of the GPU in bytes.
    """
    streams = _Streams(storages)

    def live_bytes(*_args: Any, **_kwargs: Any) -> int:
        return storages.live_bytes

    answers: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_name": lambda *_: name,
        "get_device_capability": lambda *_: capability,
        "get_device_properties": lambda *_: types.SimpleNamespace(
            name=name, major=capability[0], minor=capability[1], total_memory=num_bytes
        ),
        "is_bf16_supported": lambda *_args, **_kwargs: True,  # by emulation below compute capability 8.0
        "memory_allocated": live_bytes,
        "mem_get_info": lambda *_: (num_bytes - storages.live_bytes, num_bytes),
        "current_stream": lambda *_: streams.current,
        "default_stream": lambda *_: streams.default,
        "Stream": Stream,
        "Event": Event,
        "stream": streams.on,
        "StreamContext": streams.on,
        "device": contextlib.nullcontext,
        "device_of": contextlib.nullcontext,
    }
    orders = ("init", "synchronize", "set_device", "empty_cache", "ipc_collect", "reset_peak_memory_stats",
              "reset_accumulated_memory_stats", "manual_seed", "manual_seed_all", "set_stream")  # fmt: skip
    # One function each: torch's compiler keeps a rule for every function of torch.cuda, by its identity.
    nothing: dict[str, Callable[..., None]] = {name: lambda *_args, **_kwargs: None for name in orders}
    with replaced(torch.cuda, answers | nothing):
        yield


class _Streams:
    def __init__(self, storages: Storages) -> None:
        self._storages = storages
        self.default = Stream(name="default")
        self.current = self.default

    @contextlib.contextmanager
    def on(self, stream: Stream | None) -> Iterator[None]:
        """What is allocated inside is on `stream`."""
        before, stream_name = self.current, self._storages.stream
        if stream is not None:
            self.current = stream
            self._storages.stream = "" if stream is self.default else stream.name
        try:
            yield
        finally:
            self.current, self._storages.stream = before, stream_name
