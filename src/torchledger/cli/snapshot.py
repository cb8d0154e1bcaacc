"""`count --snapshot`: a memory snapshot that a GPU wrote, and what the model of its allocator says of it."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchledger.cli.output import show, show_json
from torchledger.memory import AllocatorSettings, DeviceRecord, Replayed, Reserved, read_snapshot, replay, reserve
from torchledger.memory.holding import by_size, by_source
from torchledger.view.snapshot import held_at_peak, snapshot_screen

_POINTS = 200


def answer_snapshot(path: Path, allocator: str | None, *, as_json: bool) -> None:
    """Show what a snapshot tells, and what other options would have done where `allocator` is their text.

    Raises:
        SnapshotError: the file is no snapshot, or not a whole one.
        AllocatorSettingsError: the options are none that PyTorch would take.
    """
    settings = None if allocator is None else AllocatorSettings.parse(allocator)
    records = read_snapshot(path)
    record = max(records, key=lambda each: each.reserved_bytes)
    seen = replay(record)
    asked = None if settings is None else reserve(seen.timeline, settings)
    assumptions = _assumptions(records, record, seen, settings)
    if as_json:
        question = {"snapshot": str(path), "allocator": allocator}
        show_json("count", question, _answer(record, seen, asked), assumptions)
    else:
        show(snapshot_screen(path.name, record, seen, asked, assumptions))


def _assumptions(
    records: tuple[DeviceRecord, ...], record: DeviceRecord, seen: Replayed, settings: AllocatorSettings | None
) -> list[str]:
    said = []
    if len(records) > 1:
        others = ", ".join(str(each.device) for each in records if each is not record)
        said.append(f"device {record.device}, on which most is reserved; the file tells of {others} too")
    if not record.events:
        said.append("no history was recorded: what is shown is the moment of the snapshot")
    elif seen.reserved_curve[0]:
        said.append("the record begins in the middle; what was held then is rewound from its end")
    if any(segment.is_private for segment in record.segments):
        said.append("pools of CUDA graphs and MemPools are taken for the default pool")
    if seen.num_uncertain:
        said.append(f"{seen.num_uncertain} blocks held at the start may be up to 1 MiB larger than assumed")
    if settings is not None:
        said.append("under other options, what was held at the start is allocated first, in the order of its addresses")
        if settings.ignored:
            said.append(f"these options change nothing here: {', '.join(settings.ignored)}")
    return said


def _answer(record: DeviceRecord, seen: Replayed, asked: Reserved | None) -> dict[str, Any]:
    live = held_at_peak(seen)
    stretch = -(-len(seen.allocated_curve) // _POINTS)
    curves = {
        "allocated_bytes": seen.allocated_curve,
        "active_bytes": seen.active_curve,
        "reserved_bytes": seen.reserved_curve,
        "inactive_split_bytes": seen.inactive_split_curve,
    }
    return {
        "device": record.device,
        "num_events": len(record.events),
        "peak_event": seen.peak_event,
        "start": {name: curve[0] for name, curve in curves.items()},
        "peak": {name: max(curve) for name, curve in curves.items()},
        "end": {name: curve[-1] for name, curve in curves.items()},
        "curves": {
            "events_per_point": stretch,
            **{
                name: [max(curve[i : i + stretch]) for i in range(0, len(curve), stretch)]
                for name, curve in curves.items()
            },
        },
        "held_at_peak": {
            "by_source": [asdict(each) for each in by_source(live)],
            "by_size": [asdict(each) for each in by_size(live)],
        },
        "model": {
            "agrees": seen.agrees,
            "num_allocations": seen.num_allocations,
            "num_same_address": seen.num_same_address,
            "num_segments": seen.num_segments,
            "num_same_size": seen.num_same_size,
            "mismatches": [asdict(each) for each in seen.mismatches[:20]],
        },
        "what_if": None
        if asked is None
        else {
            "settings": asdict(asked.settings),
            "peak": asdict(asked.peak),
            "end": asdict(asked.end),
            "num_device_allocations": asked.num_device_allocations,
        },
    }
