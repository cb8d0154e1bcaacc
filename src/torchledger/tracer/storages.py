"""The life of every storage: when it is first seen, when its last tensor dies, what it is for."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from torchledger.memory import Block, Part, Timeline
from torchledger.tracer.layouts import held
from torchledger.tracer.signature import number_format


class Entry:
    """A block that is being written: what it is for may show only later."""

    __slots__ = (
        "allocated",
        "call",
        "communicates",
        "dtype",
        "freed",
        "freed_phase",
        "is_placeholder",
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
        self.is_placeholder = False
        self.stream = ""
        self.communicates = False


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
        self.starts_of_backward: list[int] = []

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
        entry.is_placeholder = self.phase == "build" and tensor.device.type == "meta"
        self._live[address] = _watch(storage, address, entry, self._free)
        self.num_events += 1
        self.entries.append(entry)
        return entry

    def allocate_unseen(self, num_bytes: int, *, op: str, module: str, source: str, call: int) -> Entry:
        """Enter memory that torch takes below every mode, to be freed with `free`."""
        entry = Entry(
            num_bytes, op=op, phase=self.phase, module=module, source=source, call=call, allocated=self.num_events
        )
        entry.stream = self.stream
        self.num_events += 1
        self.entries.append(entry)
        return entry

    def resized(self, storage: torch.UntypedStorage, *, module: str, source: str) -> None:
        """The storage was given another size: what it had is freed, and memory for the same purpose taken anew."""
        address, num_bytes = storage._cdata, storage.nbytes()  # noqa: SLF001  # the storage's address
        watch = self._live.get(address)
        if watch is None:
            return  # it is entered when an operation first shows it
        before = watch.entry
        if before.freed is None:
            self.free(before)
        if not num_bytes:
            return
        entry = self.allocate_unseen(num_bytes, op="resize_", module=module, source=source, call=-1)
        entry.shape, entry.dtype, entry.part, entry.name = before.shape, before.dtype, before.part, before.name
        entry.communicates = before.communicates
        self._live[address] = _watch(storage, address, entry, self._free)

    def free(self, entry: Entry) -> None:
        """The entry's memory is given back now."""
        entry.freed, entry.freed_phase = self.num_events, self.phase
        self.num_events += 1

    def name(self, tensor: torch.Tensor, part: Part, name: str = "") -> None:
        """Say what the tensor's storages are for; a storage that was not seen yet is entered as already there."""
        for holder in held(tensor):
            entry = self.allocate(holder, op="")
            entry.part = part
            entry.name = entry.name or name

    def communicate(self, tensors: Iterable[torch.Tensor]) -> None:
        """A collective reads or writes these tensors."""
        for tensor in tensors:
            entry = self.entry(tensor.untyped_storage()._cdata)  # noqa: SLF001  # the storage's address
            if entry is not None:
                entry.communicates = True

    def backward_starts(self) -> None:
        """Remember that a backward pass begins here: what lives now and was made in the forward pass is kept for it."""
        self.starts_of_backward.append(self.num_events)

    def adopt(self, entries: list[Entry], num_events: int, starts_of_backward: list[int]) -> None:
        """Take these for what was written."""
        self.entries, self.num_events, self.starts_of_backward = entries, num_events, starts_of_backward

    def close(self) -> None:
        """Write no more: later frees are outside the recording."""
        self._open = False

    def timeline(self, call_positions: tuple[int, ...], marks: Mapping[str, int]) -> Timeline:
        """What was written so far."""
        freed = ordered_frees(self.entries, {*call_positions, *marks.values()})
        self._empty_placeholders()
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

    def _empty_placeholders(self) -> None:
        """Tensors that a model was made of on meta take no memory, where its parameters came to stand elsewhere.

        A model that stays on meta is one that its user wants to be told of as if it were on a device.
        """
        if any(entry.part == "parameters" and not entry.is_placeholder for entry in self.entries):
            for entry in self.entries:
                if entry.is_placeholder:
                    entry.num_bytes = 0

    def part(self, entry: Entry) -> Part:
        """What an entry is for: what was said of it, else by when it was made and when it died."""
        if entry.part is not None:
            return entry.part
        if entry.communicates and not self._is_activation(entry):
            return "communication"
        if entry.phase == "build":
            return "temporaries" if entry.freed_phase == "build" else "inputs"
        return "activations" if self._is_activation(entry) else "temporaries"

    def _is_activation(self, entry: Entry) -> bool:
        if entry.phase == "recompute":
            return entry.freed_phase != "recompute"
        return entry.phase == "forward" and self.is_kept(entry)

    def kept_by_call(self, first_call: int) -> dict[int, int]:
        """Bytes of activations that each call from `first_call` on made, by the call's index."""
        kept: dict[int, int] = {}
        for entry in self.entries:
            part = self.part(entry)
            # A forward pass may make gradients already, and keep them for the backward pass to give to the parameters.
            is_early = part == "gradients" and entry.phase == "forward"
            if entry.call >= first_call and (is_early or part == "activations"):
                kept[entry.call] = kept.get(entry.call, 0) + entry.num_bytes
        return kept

    def is_kept(self, entry: Entry) -> bool:
        """Whether what a forward pass made still lives when the next backward pass begins (or ever, without one)."""
        if entry.freed is None:
            return True
        following = bisect_left(self.starts_of_backward, entry.allocated + 1)
        return following < len(self.starts_of_backward) and entry.freed >= self.starts_of_backward[following]

    def _free(self, watch: Any) -> None:
        if not self._open:
            return
        if watch.entry.freed is None:  # a storage of no bytes was freed before
            self.free(watch.entry)
        address: int = watch.address
        if self._live.get(address) is watch:
            del self._live[address]


def ordered_frees(entries: list[Entry], boundaries: set[int]) -> dict[int, int]:
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
