"""From the recording of a folded step to that of the whole: what was left out is written as the unit before it was.

Time is told by keys: which stretch, which event in it. Stretches of the units that were left out are put in their
places, each a copy of the template's; then every event gets its number by rank. A storage of a copied
unit is freed as the template's was: as many units later or earlier at the same event, or at the same moment outside of
the run.

Nothing is taken on trust. The template and the unit before it have to be equal, call by call and storage by storage,
with equal lives (`Recorded.compare`). And when everything is in its place, each event of each unit has to be there
exactly once: a life that is not periodic leaves a gap.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import NamedTuple

from torchledger.tracer.call import Call
from torchledger.tracer.folding.equal import Run
from torchledger.tracer.folding.layer import Unfoldable
from torchledger.tracer.folding.recorded import Free, Recorded, Renaming
from torchledger.tracer.folding.segments import Label, Segments
from torchledger.tracer.record import Record
from torchledger.tracer.storages import Entry


@dataclass(frozen=True, slots=True)
class Filled:
    """A gradient that was put in the place of one that a unit left out would have made.

    Attributes:
        entry: its storage.
        template: the storage of the template's gradient.
        run, unit: whose it is.
    """

    entry: Entry
    template: Entry
    run: int
    unit: int


class _Place(NamedTuple):
    """A stretch of the whole: a recorded one, or a copy of one for another unit."""

    label: Label
    segment: int
    is_copy: bool


def unfolded(record: Record, runs: list[Run], segments: Segments, filled: list[Filled]) -> Record:
    """The recording of the whole step.

    Args:
        record: what was recorded.
        runs: what was folded.
        segments: which stretch of the recording ran which unit.
        filled: gradients that stand in for those of units that were left out.

    Raises:
        Unfoldable: the units are not alike.
    """
    recorded = Recorded(record, runs, segments)
    for number in range(len(runs)):
        recorded.compare(number)
    return _Whole(recorded, filled).record()


class _Whole:
    """The recording of the whole step, as it is put together."""

    def __init__(self, recorded: Recorded, filled: list[Filled]) -> None:
        self._recorded = recorded
        self._was = recorded.was
        self._places: list[_Place] = []
        self._index: dict[Label, int] = {}
        self._of_segment: dict[int, int] = {}
        self._arrange()
        self._first_calls: list[int] = []
        self._new: list[tuple[Entry, int, int | None, int]] = []  # entry, keys of its two events, its call
        self._counts = [0] * len(self._places)
        self._dropped = [0] * len(recorded.segments)
        self._stand_ins = {id(each.entry) for each in filled}
        self._filled = {(id(each.template), each.unit): each.entry for each in filled}
        self._with_gradients = {id(each.template) for each in filled}
        self._numbers = {id(entry): number for number, entry in enumerate(self._was.entries)} if filled else {}
        self._periodic = self._periodic_frees()

    def record(self) -> Record:
        """Put it together."""
        calls, positions = self._calls()
        for number, entry in enumerate(self._was.entries):
            self._recorded_entry(number, entry)
        for index, place in enumerate(self._places):
            if place.is_copy:
                self._copied_entries(index, place)
        self._prove_complete()
        keys = sorted(
            [allocated for _, allocated, _, _ in self._new] + [f for _, _, f, _ in self._new if f is not None]
        )
        ranks = {key: rank for rank, key in enumerate(keys)}
        if len(ranks) != len(keys):
            raise self._failed_anywhere("two events are at once")
        self._new.sort(key=lambda each: each[1])
        for entry, allocated, freed, call in self._new:
            entry.allocated, entry.freed, entry.call = ranks[allocated], None if freed is None else ranks[freed], call
        return Record(
            calls=calls,
            positions=[bisect_left(keys, key) for key in positions],
            entries=[entry for entry, _, _, _ in self._new],
            num_events=len(keys),
            starts_of_backward=[bisect_left(keys, self._moment(event)) for event in self._was.starts_of_backward],
            marks={
                name: (bisect_left(keys, self._moment(event)), self._call_after(event, call))
                for name, (event, call) in self._was.marks.items()
            },
        )

    # --------------------------------------------------------------------------------------------------- the stretches

    def _arrange(self) -> None:
        """Put copies of the template's stretches where units were left out."""
        runs = self._recorded.runs
        for number, segment in enumerate(self._recorded.segments):
            label = segment.label
            if label.kind == "left out":
                continue
            run = runs[label.run] if label.run >= 0 else None
            copies = run.left_out if run is not None and label.unit == run.template + 1 else range(0)
            if label.kind == "backward":
                self._copies(label, copies[::-1])
            self._of_segment[number] = len(self._places)
            self._index[label] = len(self._places)
            self._places.append(_Place(label, number, is_copy=False))
            if label.kind == "forward":
                self._copies(label, copies)

    def _copies(self, label: Label, units: range) -> None:
        template = self._recorded.by_label[label._replace(unit=label.unit - 1)] if units else 0
        for unit in units:
            self._index[label._replace(unit=unit)] = len(self._places)
            self._places.append(_Place(label._replace(unit=unit), template, is_copy=True))

    def _calls(self) -> tuple[list[Call], list[int]]:
        """All calls, and the moments at which they begin."""
        calls: list[Call] = []
        positions: list[int] = []
        for index, place in enumerate(self._places):
            self._first_calls.append(len(calls))
            theirs = self._recorded.calls(place.segment)
            first = self._recorded.segments[place.segment].first_event
            positions.extend(_key(index, self._was.positions[call] - first, 0) for call in theirs)
            if not place.is_copy:
                calls.extend(self._was.calls[theirs.start : theirs.stop])
                continue
            rename = Renaming(self._recorded.runs[place.label.run], place.label.unit)
            calls.extend(_moved(self._was.calls[call], rename) for call in theirs)
        return calls, positions

    def _moment(self, event: int) -> int:
        """The key of the moment before an event."""
        segment, offset = self._recorded.when(event)
        return _key(self._of_segment[segment], offset, 0)

    def _call_after(self, event: int, call: int) -> int:
        segment, _ = self._recorded.when(event)
        return self._first_calls[self._of_segment[segment]] + call - self._recorded.segments[segment].first_call

    # ----------------------------------------------------------------------------------------------------- the storages

    def _recorded_entry(self, number: int, entry: Entry) -> None:
        """Enter a storage that was recorded, its free moved where a copy took the place of what was next to it."""
        segment, offset = self._recorded.when(entry.allocated)
        home = self._recorded.segments[segment].label
        if id(entry) in self._stand_ins or home.kind == "left out":
            self._dropped[segment] += 1
            return
        free = self._recorded.free(number)
        freed = None if free is None else self._moved_free(number, segment, home, free)
        index = self._of_segment[segment]
        call = entry.call
        if call >= 0:
            call += self._first_calls[index] - self._recorded.segments[segment].first_call
        self._enter(entry, _key(index, offset, 1), freed, call)

    def _moved_free(self, number: int, segment: int, home: Label, free: Free) -> int:
        there = free.label
        if there.kind == "left out":
            template = self._twin(number, segment, home)
            as_template = self._recorded.free(template)
            if as_template is None or as_template.label.kind == "left out":
                raise self._recorded.failed(there.run, "what lives in what was left out is unlike the rest")
            return self._like(template, as_template, home)
        if home.run == there.run and home.run >= 0:
            run, steps = self._recorded.runs[home.run], self._recorded.steps(home, there)
            crosses = (home.unit <= run.template + 1) is not (there.unit <= run.template + 1)
            if crosses and (home[:3], there[:3], steps, free.event) in self._periodic:
                there = there._replace(unit=home.unit + steps)
            return self._slot(self._index[there], free, self._was.entries[number])
        return self._slot(self._of_segment[free.segment], free, self._was.entries[number])

    def _twin(self, number: int, segment: int, home: Label) -> int:
        """The storage of the template that is to it what this one is to its unit."""
        unit = self._recorded.runs[home.run].template if home.run >= 0 else -1
        template = self._recorded.by_label.get(home._replace(unit=unit))
        if template is None:
            raise self._failed_anywhere("something is freed in what was left out")
        ours, theirs = self._recorded.entries[segment], self._recorded.entries[template]
        which = ours.index(number)
        if which >= len(theirs) or any(
            getattr(self._was.entries[theirs[which]], name) != getattr(self._was.entries[number], name)
            for name in ("num_bytes", "op", "shape")
        ):
            raise self._recorded.failed(home.run, "the last layer is unlike the others")
        return theirs[which]

    def _copied_entries(self, index: int, place: _Place) -> None:
        """Enter a copied unit's storages."""
        recorded, label = self._recorded, place.label
        rename = Renaming(recorded.runs[label.run], label.unit)
        first_call = self._first_calls[index] - recorded.segments[place.segment].first_call
        for number in recorded.entries[place.segment]:
            template = self._was.entries[number]
            entry = _copy(template, rename)
            freed: int | None
            if id(template) in self._with_gradients:
                stand_in = self._filled[id(template), label.unit]
                free = recorded.free(self._numbers[id(stand_in)])
                entry.freed_phase = stand_in.freed_phase
                freed = None if free is None else self._slot(self._of_segment[free.segment], free, stand_in)
            else:
                free = recorded.free(number)
                freed = None if free is None else self._like(number, free, label)
            offset = recorded.when(template.allocated)[1]
            self._enter(entry, _key(index, offset, 1), freed, -1 if template.call < 0 else template.call + first_call)

    def _like(self, template: int, free: Free, label: Label) -> int:
        """When a unit's storage is freed whose template is freed at `free`."""
        if free.label.kind == "left out":
            raise self._recorded.failed(label.run, "what lives in what was left out is unlike the rest")
        if free.label.run >= 0 and free.label.run != label.run:
            raise self._recorded.failed(label.run, "what its layers make is used by another list's")
        if free.label.run != label.run:
            return _key(self._of_segment[free.segment], free.event, 2 + label.unit)
        run = self._recorded.runs[label.run]
        unit = label.unit + run.steps(run.template, free.label.unit)
        place = self._index.get(free.label._replace(unit=unit))
        if place is None:
            raise self._recorded.failed(label.run, "its layers do not run alike")
        return self._slot(place, free, self._was.entries[template])

    def _slot(self, place: int, free: Free, entry: Entry) -> int:
        """The key of a free in a stretch; in that of a unit there is one free of these bytes at that event."""
        self._counts[place] += 1
        if self._places[place].label.kind in {"forward", "backward"} and place != self._of_segment.get(free.segment):
            self._expected(place, free.event, -entry.num_bytes)
        return _key(place, free.event, 1)

    def _expected(self, place: int, event: int, delta_bytes: int) -> None:
        segment = self._places[place].segment
        position = self._recorded.segments[segment].first_event + event
        if self._recorded.deltas[position] != delta_bytes:
            raise self._recorded.failed(self._places[place].label.run, "lives of its tensors are not periodic")

    def _enter(self, entry: Entry, allocated: int, freed: int | None, call: int) -> None:
        self._counts[allocated >> 44] += 1
        self._new.append((entry, allocated, freed, call))

    def _periodic_frees(self) -> set[tuple[object, ...]]:
        """Where a template's storage is freed in another unit: kinds of both stretches, units between, event."""
        found: set[tuple[object, ...]] = set()
        for label, segment in self._recorded.by_label.items():
            if label.unit != self._recorded.runs[label.run].template:
                continue
            for number in self._recorded.entries[segment]:
                free = self._recorded.free(number)
                if free is not None and free.label.run == label.run:
                    found.add((label[:3], free.label[:3], self._recorded.steps(label, free.label), free.event))
        return found

    def _prove_complete(self) -> None:
        """Each event of each unit is there exactly once."""
        for index, place in enumerate(self._places):
            if place.label.kind not in {"forward", "backward"}:
                continue
            dropped = 0 if place.is_copy else self._dropped[place.segment]
            if self._counts[index] != self._recorded.num_events(place.segment) - dropped:
                raise self._recorded.failed(place.label.run, "lives of its tensors are not periodic")

    def _failed_anywhere(self, reason: str) -> Unfoldable:
        return self._recorded.failed(0, reason)


def _key(place: int, event: int, order: int) -> int:
    """A moment as a number: stretch, event of it, order at that event (0 is just before it)."""
    return place << 44 | event << 20 | order


def _moved(call: Call, rename: Renaming) -> Call:
    return replace(call, module=rename(call.module))


def _copy(template: Entry, rename: Renaming) -> Entry:
    entry = Entry.__new__(Entry)
    for name in Entry.__slots__:
        setattr(entry, name, getattr(template, name))
    entry.module, entry.name = rename(template.module), rename(template.name)
    return entry
