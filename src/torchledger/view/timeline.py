"""A plan's step as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing: one process a pipeline stage.

The format is Chrome's Trace Event Format, JSON object flavour ("Trace Event Format", Google, 2016; Perfetto reads it):
`X` is a complete event with start and length in microseconds, `M` names processes and threads, `C` is a counter. Events
of one thread must nest, so what runs beside the computing (sends, reductions) has threads of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchledger.planner.outcome import Plan, Slot, StagePlan

Event = dict[str, Any]

_COMPUTING = "compute"
#: What does not run on the computing stream, and the thread that it is drawn in.
_THREADS: Mapping[str, str] = {
    "send": "pipeline sends",
    "gather": "data parallel communication",
    "reduce": "data parallel communication",
    "to host": "host transfers",
    "from host": "host transfers",
}


def trace_events(plan: Plan) -> dict[str, Any]:
    """The step as a Trace Event document: JSON-ready data."""
    events = [event for stage in plan.stages for event in _stage_events(stage)]
    return {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {
            "model": plan.spec.name,
            "chip": plan.cluster.chip.name,
            "num_chips": plan.cluster.num_chips,
            "step_s": plan.step_s,
        },
    }


def trace_json(plan: Plan) -> str:
    """The same as text of a file that Perfetto opens."""
    return json.dumps(trace_events(plan), allow_nan=False)


def _stage_events(plan: StagePlan) -> Iterator[Event]:
    pid = plan.stage.index
    yield _named("process_name", pid, 0, name=f"stage {pid}")
    yield _named("process_sort_index", pid, 0, sort_index=pid)
    for tid, (thread, slots) in enumerate(lanes(plan.time_line).items()):
        yield _named("thread_name", pid, tid, name=thread)
        yield _named("thread_sort_index", pid, tid, sort_index=tid)
        yield from (_complete(slot, pid, tid) for slot in slots)
    yield from _alive(plan)


def lanes(time_line: Iterable[Slot]) -> dict[str, list[Slot]]:
    """The slots by thread: no two of a thread overlap. Sends that run at once are told apart by a number."""
    found: dict[str, list[Slot]] = {_COMPUTING: []}
    for slot in sorted(time_line, key=lambda each: (each.start_s, -each.end_s)):
        name = _THREADS.get(slot.what, _COMPUTING)
        number = 1
        while (lane := found.setdefault(_numbered(name, number), [])) and lane[-1].end_s > slot.start_s + _touch(slot):
            number += 1
        lane.append(slot)
    return found


def _numbered(name: str, number: int) -> str:
    return name if number == 1 else f"{name} {number}"


def _touch(slot: Slot) -> float:
    """Slots that touch may overlap by the rounding of their sums."""
    return 1e-9 * max(slot.end_s, 1e-3)


def _complete(slot: Slot, pid: int, tid: int) -> Event:
    arguments: dict[str, int] = {"chunk": slot.chunk}
    if slot.micro_batch >= 0:
        arguments["micro_batch"] = slot.micro_batch
    name = slot.what if slot.micro_batch < 0 else f"{slot.what} {slot.micro_batch}"
    return {
        "name": name,
        "cat": slot.what,
        "ph": "X",
        "ts": slot.start_s * 1e6,
        "dur": (slot.end_s - slot.start_s) * 1e6,
        "pid": pid,
        "tid": tid,
        "args": arguments,
    }


def _alive(plan: StagePlan) -> Iterator[Event]:
    """Bytes of kept activations after every slot: made by a forward pass, given back when the last use is over."""
    kept = [sum(block.kept_bytes * n for block, n in chunk) for chunk in plan.stage.chunks]
    changes: list[tuple[float, int]] = []
    last = _last_use(plan.time_line)
    for slot in plan.time_line:
        key = (slot.micro_batch, slot.chunk)
        if slot.what == "forward" and slot.chunk < len(kept):
            changes.append((slot.start_s, kept[slot.chunk]))
            if key in last:
                changes.append((last[key], -kept[slot.chunk]))
    held = 0
    for at_s, change in sorted(changes):
        held += change
        yield _counter("kept activations", plan.stage.index, at_s, {"bytes": held})


def _last_use(time_line: Iterable[Slot]) -> dict[tuple[int, int], float]:
    """When each micro-batch of each chunk is done with: after its weight gradients where they are apart."""
    last: dict[tuple[int, int], float] = {}
    for slot in time_line:
        if slot.what in {"backward", "weight gradient"}:
            key = (slot.micro_batch, slot.chunk)
            last[key] = max(last.get(key, 0.0), slot.end_s)
    return last


def _named(what: str, pid: int, tid: int, **arguments: Any) -> Event:
    return {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": arguments}


def _counter(name: str, pid: int, at_s: float, values: Mapping[str, float]) -> Event:
    return {"name": name, "ph": "C", "ts": at_s * 1e6, "pid": pid, "args": dict(values)}
