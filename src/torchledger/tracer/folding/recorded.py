"""What a folded step left: calls and storages by stretches, and whether the units that ran are alike."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import NamedTuple

from torchledger.tracer.call import Call
from torchledger.tracer.folding.equal import Run
from torchledger.tracer.folding.layer import Unfoldable
from torchledger.tracer.folding.segments import OUTSIDE, Label, Segments
from torchledger.tracer.record import Record
from torchledger.tracer.storages import ordered_frees

_ALIKE = ("num_bytes", "op", "phase", "freed_phase", "source", "part", "shape", "dtype", "on_host", "stream")
_RENAMED = ("module", "name")


class Free(NamedTuple):
    """When a storage is freed.

    Attributes:
        label: of the stretch in which it is.
        segment: that stretch.
        event: which event of it.
        call: how many of its calls had begun.
    """

    label: Label
    segment: int
    event: int
    call: int


class Recorded:
    """A folded recording by stretches."""

    def __init__(self, record: Record, runs: list[Run], segments: Segments) -> None:
        self.was, self.runs, self.segments = record, runs, segments.all
        self._at = segments.at
        firsts = {segment.first_event for segment in self.segments}
        marked = {event for event, _ in record.marks.values()}
        self._freed = ordered_frees(record.entries, {*record.positions, *marked, *firsts})
        self.deltas = [0] * record.num_events
        for number, entry in enumerate(record.entries):
            self.deltas[entry.allocated] = entry.num_bytes
            if number in self._freed:
                self.deltas[self._freed[number]] = -entry.num_bytes
        self.entries: list[list[int]] = [[] for _ in self.segments]
        for number, entry in enumerate(record.entries):
            self.entries[self._at(entry.allocated)].append(number)
        self.by_label: dict[Label, int] = {}
        for number, segment in enumerate(self.segments):
            if segment.label.kind in {"forward", "backward"}:
                if segment.label in self.by_label:
                    raise self.failed(segment.label.run, "operations of different layers mix")
                self.by_label[segment.label] = number
        self._find_first()

    def failed(self, run: int, reason: str) -> Unfoldable:
        """Why a run cannot be unfolded."""
        return Unfoldable(self.runs[run].path, reason, self.runs[run].plan.wider)

    def _find_first(self) -> None:
        """Where a first unit's backward is not told by its nodes, it is what follows that of the second.

        The node of reentrant checkpointing is made before the layer is called.
        """
        for label, number in list(self.by_label.items()):
            first = label._replace(unit=0)
            if label.kind == "backward" and label.unit == 1 and first not in self.by_label:
                following = number + 1
                if following < len(self.segments) and self.segments[following].label == OUTSIDE:
                    self.segments[following] = replace(self.segments[following], label=first)
                    self.by_label[first] = following

    def num_events(self, segment: int) -> int:
        """Events of a stretch."""
        ends = segment + 1 < len(self.segments)
        return (self.segments[segment + 1].first_event if ends else self.was.num_events) - self.segments[
            segment
        ].first_event

    def calls(self, segment: int) -> range:
        """Calls of a stretch."""
        ends = segment + 1 < len(self.segments)
        end = self.segments[segment + 1].first_call if ends else len(self.was.calls)
        return range(self.segments[segment].first_call, end)

    def when(self, event: int) -> tuple[int, int]:
        """Stretch of an event, and which of its events it is."""
        segment = self._at(event)
        return segment, event - self.segments[segment].first_event

    def free(self, number: int) -> Free | None:
        """When a storage is freed."""
        event = self._freed.get(number)
        if event is None:
            return None
        segment, offset = self.when(event)
        first = self.segments[segment].first_call
        call = bisect_right(self.was.positions, event, first, self.calls(segment).stop) - first
        return Free(self.segments[segment].label, segment, offset, call)

    # ------------------------------------------------------------------------------------------- are the units alike?

    def compare(self, run: int) -> None:
        """Compare the template with the unit before it in all, and with the one after it in what it does."""
        for label, template in list(self.by_label.items()):
            if label.run != run or label.unit != self.runs[run].template:
                continue
            for unit in (label.unit - 1, label.unit + 1):
                other = self.by_label.get(label._replace(unit=unit))
                if other is None:
                    raise self.failed(run, "its layers do not run alike")
                rename = Renaming(self.runs[run], unit)
                self._compare_calls(run, template, other, rename)
                self._compare_entries(run, template, other, rename, lives=unit < label.unit)

    def _compare_calls(self, run: int, template: int, other: int, rename: Renaming) -> None:
        ours, theirs = self.calls(template), self.calls(other)
        calls = self.was.calls
        if len(ours) != len(theirs) or not all(
            calls[a].signature is calls[b].signature
            and rename(calls[a].module) == calls[b].module
            and _of_call(calls[a]) == _of_call(calls[b])
            for a, b in zip(ours, theirs, strict=True)
        ):
            raise self.failed(run, "its layers run different operations")

    def _compare_entries(self, run: int, template: int, other: int, rename: Renaming, *, lives: bool) -> None:
        ours, theirs = self.entries[template], self.entries[other]
        alike = len(ours) == len(theirs) and (not lives or self.num_events(template) == self.num_events(other))
        for a, b in zip(ours, theirs, strict=False):
            if not alike:
                break
            one, two = self.was.entries[a], self.was.entries[b]
            alike = all(getattr(one, name) == getattr(two, name) for name in _ALIKE if name != "freed_phase" or lives)
            alike = alike and all(rename(getattr(one, name)) == getattr(two, name) for name in _RENAMED)
            alike = alike and self.when(one.allocated)[1] == self.when(two.allocated)[1]
            alike = alike and (not lives or one.part == "gradients" or self._life(run, a) == self._life(run, b))
        if not alike:
            raise self.failed(run, "its layers use memory differently")

    def _life(self, run: int, number: int) -> tuple[object, ...]:
        """When a storage is freed, as told from its own unit."""
        free = self.free(number)
        if free is None:
            return ()
        if free.label.run != run or free.label.kind == "left out":
            return free.segment, free.call
        home = self.segments[self._at(self.was.entries[number].allocated)].label
        return free.label.kind, free.label.instance, self.steps(home, free.label), free.event

    def steps(self, home: Label, there: Label) -> int:
        """How many units of those that ran lie between."""
        return self.runs[home.run].steps(home.unit, there.unit)


class Renaming:
    """Paths of the template's layers as those of another unit's."""

    def __init__(self, run: Run, unit: int) -> None:
        self._prefixes = tuple(zip(run.prefixes(run.template), run.prefixes(unit), strict=True))
        self._known: dict[str, str] = {}

    def __call__(self, path: str) -> str:
        """The path, renamed where it lies in a layer of the template."""
        known = self._known.get(path)
        if known is None:
            known = path
            for template, other in self._prefixes:
                if path == template or path.startswith(f"{template}."):
                    known = other + path[len(template) :]
                    break
            self._known[path] = known
        return known


def _of_call(call: Call) -> tuple[object, ...]:
    return call.phase, call.gradient_of, call.kind, call.source, call.visible
