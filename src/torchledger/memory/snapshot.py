"""Reading a memory snapshot of PyTorch (`torch.cuda.memory._dump_snapshot`), safely.

Errors: `SnapshotError` - the file is no snapshot, or not a whole one.

A snapshot is a pickle, and a pickle can run code. This reader lets no class and no function in: what remains are
dicts, lists, tuples, texts and numbers, which is all that a snapshot holds.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, get_args

from torchledger.memory.frames import Origin, origin_of
from torchledger.memory.settings import AllocatorSettings, AllocatorSettingsError

Action: TypeAlias = Literal[
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "snapshot",
    "oom",
]
_ACTIONS = frozenset(get_args(Action))
_HELD = {"active_allocated": "allocated", "active_pending_free": "waiting", "active_awaiting_free": "waiting"}


class SnapshotError(ValueError):
    """The file is no snapshot of PyTorch's CUDA memory, or not a whole one."""


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """One thing that the allocator did.

    Attributes:
        action: what; `alloc` and `free_requested` are calls, the rest follows from them.
        address: of the block or segment; for `oom` the free bytes of the device.
        num_bytes: for blocks what the caller asked for, for segments their size.
        stream: the stream it belongs to.
        origin: where in the program.
    """

    action: Action
    address: int
    num_bytes: int
    stream: str
    origin: Origin


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """A piece of a segment when the snapshot was taken.

    Attributes:
        address: where it begins.
        num_bytes: its size.
        requested_bytes: what was asked for.
        is_held: whether somebody holds it, or another stream still reads it.
        is_waiting: the latter.
        origin: where it was allocated, as far as known.
    """

    address: int
    num_bytes: int
    requested_bytes: int
    is_held: bool
    is_waiting: bool
    origin: Origin


@dataclass(frozen=True, slots=True)
class RecordedSegment:
    """A segment when the snapshot was taken.

    Attributes:
        address: where it begins.
        num_bytes: its size.
        stream: the stream it belongs to.
        is_small: whether it is of the small pool.
        is_expandable: whether it is mapped pages of an expandable segment.
        is_private: whether it belongs to a CUDA graph or a `MemPool`.
        blocks: its pieces by address.
    """

    address: int
    num_bytes: int
    stream: str
    is_small: bool
    is_expandable: bool
    is_private: bool
    blocks: tuple[RecordedBlock, ...]


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """What a snapshot tells of one device.

    Attributes:
        device: its index.
        settings: the allocator's options as far as the snapshot tells them.
        events: what happened while history was recorded, oldest first; the oldest may be lost.
        segments: what was reserved at the end, by address.
    """

    device: int
    settings: AllocatorSettings
    events: tuple[TraceEvent, ...]
    segments: tuple[RecordedSegment, ...]

    @property
    def reserved_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.num_bytes for segment in self.segments)

    @property
    def allocated_bytes(self) -> int:
        """Bytes of the blocks that callers held."""
        return sum(b.num_bytes for s in self.segments for b in s.blocks if b.is_held and not b.is_waiting)


class _Unpickler(pickle.Unpickler):
    """Lets no class and no function in."""

    def find_class(self, module: str, name: str) -> NoReturn:
        raise SnapshotError(
            f"the file names {module}.{name}; a snapshot holds no class or function, and loading one could run code"
        )


def read_snapshot(path: Path) -> tuple[DeviceRecord, ...]:
    """The devices that a snapshot tells of, those without memory or events left out.

    Raises:
        SnapshotError: no pickle, not whole, with a class in it, or not a snapshot; the message says which.
        OSError: the file cannot be read.
    """
    try:
        return _devices(_load(path))
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error.__cause__


def _load(path: Path) -> Any:
    with path.open("rb") as file:
        begin = file.read(64)
        if not begin:
            raise SnapshotError("the file is empty")
        if begin.startswith(b"PK"):
            raise SnapshotError(
                "a zip file, as torch.save writes; torch.cuda.memory._dump_snapshot writes a bare pickle"
            )
        if begin.startswith(b"\x1f\x8b"):
            raise SnapshotError("compressed by gzip; unpack it first (gunzip)")
        if begin[0] != 0x80:
            raise SnapshotError("not a pickle; torch.cuda.memory._dump_snapshot(path) writes one")
        file.seek(0)
        try:
            return _Unpickler(file).load()
        except SnapshotError:
            raise
        except EOFError as error:
            raise SnapshotError("the file ends too early; it was not written to its end") from error
        except (pickle.UnpicklingError, ValueError, TypeError, LookupError, AttributeError, OverflowError) as error:
            early = "truncated" in str(error)
            what = "the file ends too early; it was not written to its end" if early else f"a damaged pickle: {error}"
            raise SnapshotError(what) from error
        except (MemoryError, RecursionError) as error:
            raise SnapshotError("a damaged pickle: it asks for more memory or depth than any snapshot") from error


def _devices(data: Any) -> tuple[DeviceRecord, ...]:
    if not isinstance(data, dict):
        raise SnapshotError(f"a pickle of a {type(data).__name__}, not of a snapshot")
    missing = [key for key in ("segments", "device_traces") if not isinstance(data.get(key), list)]
    if missing:
        raise SnapshotError(f"not a snapshot of torch.cuda.memory: it has no {' and no '.join(missing)}")
    try:
        segments = [(int(row.get("device", 0)), _segment(row)) for row in data["segments"]]
        traces = [tuple(_event(row) for row in trace) for trace in data["device_traces"]]
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise SnapshotError(f"a field of the snapshot is missing or wrong: {error!r}") from error
    settings = settings_of(data.get("allocator_settings"))
    indices = {device for device, _ in segments} | {index for index, events in enumerate(traces) if events}
    if not indices:
        raise SnapshotError(
            "the snapshot is empty: no memory was reserved and no history recorded;"
            " call torch.cuda.memory._record_memory_history() before the step, _dump_snapshot(path) after it"
        )
    return tuple(
        DeviceRecord(
            device,
            settings,
            traces[device] if device < len(traces) else (),
            tuple(sorted((s for index, s in segments if index == device), key=lambda s: s.address)),
        )
        for device in sorted(indices)
    )


def _event(row: Mapping[str, Any]) -> TraceEvent:
    action = row["action"]
    if action not in _ACTIONS:
        raise ValueError(f"an action {action!r}")
    address = row["device_free"] if action == "oom" and "device_free" in row else row["addr"]
    return TraceEvent(action, int(address), int(row["size"]), str(row["stream"]), origin_of(row.get("frames") or ()))


def _segment(row: Mapping[str, Any]) -> RecordedSegment:
    address = int(row["address"])
    blocks, here = [], address
    for each in row["blocks"]:
        begin = int(each.get("address", here))
        blocks.append(_block(each, begin))
        here = begin + int(each["size"])
    return RecordedSegment(
        address,
        int(row["total_size"]),
        str(row["stream"]),
        row["segment_type"] == "small",
        bool(row.get("is_expandable", False)),
        tuple(row.get("segment_pool_id", (0, 0))) != (0, 0),
        tuple(blocks),
    )


def _block(row: Mapping[str, Any], address: int) -> RecordedBlock:
    state = _HELD.get(row["state"], "free")
    size = int(row["size"])
    requested = int(row.get("requested_size", size))
    return RecordedBlock(
        address, size, requested, state != "free", state == "waiting", origin_of(row.get("frames") or ())
    )


def settings_of(told: object) -> AllocatorSettings:
    """The allocator's options that a snapshot tells: the text of the environment first, then the fields beside it."""
    if not isinstance(told, dict):
        return AllocatorSettings()
    text = told.get("PYTORCH_ALLOC_CONF") or told.get("PYTORCH_CUDA_ALLOC_CONF") or ""
    try:
        if isinstance(text, str) and text:
            return AllocatorSettings.parse(text)
    except AllocatorSettingsError:
        pass  # an option of another version: the fields below hold what was in force
    divisions = told.get("roundup_power2_divisions")
    split = told.get("max_split_size", -1)
    defaults = AllocatorSettings()
    return AllocatorSettings(
        expandable_segments=bool(told.get("expandable_segments", False)),
        max_split_bytes=split if isinstance(split, int) and split > 0 else None,
        garbage_collection_threshold=float(told.get("garbage_collection_threshold", 0.0)),
        roundup_power2_divisions=_divisions(divisions) or defaults.roundup_power2_divisions,
    )


def _divisions(told: object) -> tuple[int, ...] | None:
    """Divisors by interval: `{"1": 0, "2": 0, ...}` in MiB, in order."""
    length = len(AllocatorSettings().roundup_power2_divisions)
    values: Sequence[Any] = list(told.values()) if isinstance(told, dict) else ()
    return tuple(int(value) for value in values) if len(values) == length else None
