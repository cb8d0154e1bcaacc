"""The screen of `count --snapshot`: what a recorded GPU held, who held it at the peak, and what the model says."""

from __future__ import annotations

from collections.abc import Sequence

from torchledger.memory import DeviceRecord, Replayed, Reserved
from torchledger.memory.holding import Holding, by_size, by_source
from torchledger.memory.timeline import Block as MemoryBlock
from torchledger.units import format_bytes, group_digits
from torchledger.view.screen import Block, Facts, Lines, Row, Table, assumed

_ROWS = 15


def snapshot_screen(
    name: str,
    record: DeviceRecord,
    seen: Replayed,
    asked: Reserved | None,
    assumptions: Sequence[str],
) -> tuple[Block, ...]:
    """What a memory snapshot tells.

    Args:
        name: the file.
        record: the record of one device.
        seen: its replay on the model.
        asked: the same allocations under other options, if they were asked for.
        assumptions: what to say beside the answer.
    """
    live = held_at_peak(seen)
    return (
        Lines((headline(name, seen),), mark="headline"),
        Facts(snapshot_facts(record, seen)),
        _table(by_source(live), "where", "held at the peak, by where it was allocated"),
        _table(by_size(live), "size", "held at the peak, by size"),
        Lines(agreement(seen), "the allocator as a model", "" if seen.agrees else "warning"),
        *(() if asked is None else (what_if_table(seen, asked),)),
        *assumed(assumptions),
    )


def held_at_peak(seen: Replayed) -> tuple[MemoryBlock, ...]:
    """The blocks that were live when most was allocated, largest first."""
    return seen.timeline.live_at(seen.positions[seen.peak_event])


def headline(name: str, seen: Replayed) -> str:
    """The answer in one sentence."""
    return (
        f"{name}: {format_bytes(max(seen.allocated_curve))} allocated at the peak,"
        f" {format_bytes(max(seen.reserved_curve))} reserved"
    )


def snapshot_facts(record: DeviceRecord, seen: Replayed) -> tuple[tuple[str, str], ...]:
    """The curves in figures: at the start, at their peak, at the end."""
    peak, last = seen.peak_event, len(record.events)

    def three(curve: Sequence[int]) -> str:
        return f"{format_bytes(curve[0])} → {format_bytes(max(curve))} → {format_bytes(curve[-1])}"

    unused = seen.reserved_curve[peak] - seen.active_curve[peak]
    return (
        ("record", f"{group_digits(last)} events on device {record.device}"),
        ("peak", f"after event {group_digits(peak)}; amounts below are start → most → end"),
        ("allocated", three(seen.allocated_curve)),
        ("active", three(seen.active_curve)),
        ("reserved", three(seen.reserved_curve)),
        ("in split segments", f"{three(seen.inactive_split_curve)} free, and cannot go back to the device"),
        ("at the peak", f"{format_bytes(unused)} reserved and not in use"),
    )


def agreement(seen: Replayed) -> tuple[str, ...]:
    """Whether the model did what the record tells, in words."""
    addresses = f"{group_digits(seen.num_same_address)} of {group_digits(seen.num_allocations)} allocations"
    segments = f"{group_digits(seen.num_same_size)} of {group_digits(seen.num_segments)} new segments"
    lines = [f"{addresses} at their recorded address, {segments} in their size"]
    for first in seen.mismatches[:1]:
        modelled = "none of that size" if first.modelled is None else group_digits(first.modelled)
        lines.append(
            f"they part at event {group_digits(first.event)}: {first.what}: recorded {group_digits(first.recorded)},"
            f" modelled {modelled}; memory used after that follows the model"
        )
    return tuple(lines)


def what_if_table(seen: Replayed, asked: Reserved) -> Table:
    """The record beside the same allocations under other options."""
    last = asked.peak
    rows = (
        ("allocated, most", max(seen.allocated_curve), last.allocated_bytes),
        ("reserved, most", max(seen.reserved_curve), last.reserved_bytes),
        ("reserved, at the end", seen.reserved_curve[-1], asked.end.reserved_bytes),
    )
    return Table(
        ("<amount", "recorded", "with these options"),
        tuple(Row((what, format_bytes(recorded), format_bytes(modelled))) for what, recorded, modelled in rows),
        "the same allocations under other options",
    )


def _table(holdings: Sequence[Holding], what: str, title: str) -> Table:
    rows = tuple(
        Row(
            (
                group_digits(int(each.what)) if what == "size" else each.what,
                each.op if len(each.op) <= 40 else f"{each.op[:39]}…",
                group_digits(each.num_blocks),
                format_bytes(each.num_bytes),
            )
        )
        for each in holdings[:_ROWS]
    )
    left = holdings[_ROWS:]
    note = (
        f"and {group_digits(len(left))} more, {format_bytes(sum(each.num_bytes for each in left))} in all"
        if left
        else ""
    )
    return Table((f"<{what}", "<op", "blocks", "bytes"), rows, title, note, optional=("op",))
