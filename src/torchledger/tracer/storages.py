"""The life of every storage: when it is first seen, when its last tensor dies, what it is for."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

import torch

from torchledger.memory import Block, Part, Timeline
from torchledger.tracer.signature import number_format


class Entry:
    """A block that is being written: what it is for may show only later."""

    __slots__ = (
        "allocated",
        "call",
        "dtype",
        "freed",
        "freed_phase",
        "module",
        "name",
        "num_bytes",
        "on_host",
        "op",
        "part",
        "phase",
        "shape",
        "source",
        "stream",
    )

    def __init__(
        self, num_bytes: int, *, op: str, phase: str, module: str, source: str, call: int, allocated: int
    ) -> None:
        self.num_bytes = num_bytes
        self.op = op
        self.phase = phase
        self.module = module
        self.source = source
        self.call = call
        self.allocated = allocated
        self.freed: int | None = None
        self.freed_phase = ""
        self.part: Part | None = None
        self.name = ""
        self.shape: tuple[int, ...] = ()
        self.dtype: torch.dtype = torch.uint8
        self.on_host = False
        self.stream = ""


class _Watch(weakref.ref):  # type: ignore[type-arg]  # a slot on the reference itself saves a closure a storage
    __slots__ = ("address", "entry")

    address: int
    entry: Entry


def _watch(storage: torch.UntypedStorage, address: int, entry: Entry, died: Callable[[Any], None]) -> _Watch:
    watch = _Watch(storage, died)
    watch.address, watch.entry = address, entry
    return watch


class Storages:
    """Storages by address, aliasing respected, from first sight to the death of their last tensor.

    torch keeps one Python object for a storage as long as the storage lives, whoever holds it (autograd's saved tensors
    among them), so a weak reference to that object dies with the storage.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.num_events = 0
        self.phase = "forward"
        self.stream = ""
        self._live: dict[int, _Watch] = {}
        self._open = True
        self._backward_starts: list[int] = []

    def __contains__(self, address: int) -> bool:
        return address in self._live

    @property
    def live_bytes(self) -> int:
        """Bytes of everything that lives now, what stands on the host left out."""
        return sum(entry.num_bytes for entry in self.entries if entry.freed is None and not entry.on_host)

    def entry(self, address: int) -> Entry | None:
        """The live entry at an address."""
        watch = self._live.get(address)
        return None if watch is None else watch.entry

    def allocate(self, tensor: torch.Tensor, *, op: str, module: str = "", source: str = "", call: int = -1) -> Entry:
        """Enter the tensor's storage, or hand back the entry that it has."""
        storage = tensor.untyped_storage()
        address = storage._cdata  # noqa: SLF001  # the storage's address
        watch = self._live.get(address)
        if watch is not None:
            return watch.entry
        entry = Entry(
            storage.nbytes(),
            op=op,
            phase=self.phase,
            module=module,
            source=source,
            call=call,
            allocated=self.num_events,
        )
        entry.shape, entry.dtype, entry.stream = tuple(tensor.shape), tensor.dtype, self.stream
        self._live[address] = _watch(storage, address, entry, self._free)
        self.num_events += 1
        self.entries.append(entry)
        return entry

    def allocate_unseen(self, num_bytes: int, *, op: str, module: str, source: str, call: int) -> Entry:
        """Enter memory that torch takes below every mode, to be freed with `free`."""
        entry = Entry(
            num_bytes, op=op, phase=self.phase, module=module, source=source, call=call, allocated=self.num_events
        )
        self.num_events += 1
        self.entries.append(entry)
        return entry

    def free(self, entry: Entry) -> None:
        """The entry's memory is given back now."""
        entry.freed, entry.freed_phase = self.num_events, self.phase
        self.num_events += 1

    def name(self, tensor: torch.Tensor, part: Part, name: str = "") -> None:
        """Say what the tensor's storage is for; a storage that was not seen yet is entered as already there."""
        entry = self.allocate(tensor, op="")
        entry.part = part
        entry.name = entry.name or name

    def backward_starts(self) -> None:
        """Remember that a backward pass begins here: what lives now and was made in the forward pass is kept for it."""
        self._backward_starts.append(self.num_events)

    def close(self) -> None:
        """Write no more: later frees are outside the recording."""
        self._open = False

    def timeline(self, call_positions: tuple[int, ...], marks: Mapping[str, int]) -> Timeline:
        """What was written so far."""
        freed = _ordered_frees(self.entries, {*call_positions, *marks.values()})
        blocks = tuple(
            Block(
                num_bytes=entry.num_bytes,
                part=self.part(entry),
                module=entry.module,
                op=entry.op,
                phase=entry.phase,
                name=entry.name,
                shape=entry.shape,
                number_format=number_format(entry.dtype),
                source=entry.source,
                call=entry.call,
                allocated=entry.allocated,
                freed=freed.get(number),
                on_host=entry.on_host,
                stream=entry.stream,
            )
            for number, entry in enumerate(self.entries)
        )
        return Timeline(blocks, self.num_events, call_positions, dict(marks))

    def part(self, entry: Entry) -> Part:
        """What an entry is for: what was said of it, else by when it was made and when it died."""
        if entry.part is not None:
            return entry.part
        if entry.phase == "build":
            return "temporaries" if entry.freed_phase == "build" else "inputs"
        if entry.phase == "recompute":
            return "temporaries" if entry.freed_phase == "recompute" else "activations"
        if entry.phase == "forward" and self.is_kept(entry):
            return "activations"
        return "temporaries"

    def is_kept(self, entry: Entry) -> bool:
        """Whether what a forward pass made still lives when the next backward pass begins (or ever, without one)."""
        if entry.freed is None:
            return True
        following = bisect_left(self._backward_starts, entry.allocated + 1)
        return following < len(self._backward_starts) and entry.freed >= self._backward_starts[following]

    def _free(self, watch: Any) -> None:
        if not self._open:
            return
        self.free(watch.entry)
        address: int = watch.address
        if self._live.get(address) is watch:
            del self._live[address]


def _ordered_frees(entries: list[Entry], boundaries: set[int]) -> dict[int, int]:
    """For each entry that was freed, when: what dies between two operations dies in order of allocation.

    Where many die at once (autocast's cache of casts) the order is that of addresses, and differs from run to run.
    """
    by_event = {entry.freed: number for number, entry in enumerate(entries) if entry.freed is not None}
    moments: list[list[int]] = []
    for event in sorted(by_event):
        if not moments or event != moments[-1][-1] + 1 or event in boundaries:
            moments.append([])
        moments[-1].append(event)
    ordered: dict[int, int] = {}
    for moment in moments:
        ordered.update(zip(sorted(by_event[event] for event in moment), moment, strict=True))
    return ordered
