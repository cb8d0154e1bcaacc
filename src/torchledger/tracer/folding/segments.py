"""Stretches of a recording: which part of it ran which unit of which run."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

Kind: TypeAlias = Literal["outside", "forward", "backward", "left out"]


class Label(NamedTuple):
    """What a stretch ran.

    Attributes:
        kind: the forward or the backward of a unit, what was left out between two units, or anything outside of runs.
        run: number of the run.
        instance: how often that run had been run before.
        unit: number of the unit.
    """

    kind: Kind = "outside"
    run: int = -1
    instance: int = 0
    unit: int = -1

    @property
    def backward(self) -> Label:
        """The label of what differentiates this."""
        return self._replace(kind="backward") if self.kind == "forward" else self


OUTSIDE = Label()


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of events and calls: it goes on to the next segment's first."""

    label: Label
    first_event: int
    first_call: int


class Segments:
    """All stretches in order, and which autograd nodes were made in which."""

    def __init__(self) -> None:
        self.all: list[Segment] = [Segment(OUTSIDE, 0, 0)]
        self._first_events: list[int] = [0]
        self._nodes: list[int] = [0]
        self._labels: list[Label] = [OUTSIDE]

    @property
    def label(self) -> Label:
        """Label of the last one."""
        return self.all[-1].label

    def open(self, label: Label, num_events: int, num_calls: int) -> None:
        """From here on it is `label`."""
        if label != self.label:
            self.all.append(Segment(label, num_events, num_calls))
            self._first_events.append(num_events)

    def nodes_from(self, number: int, label: Label) -> None:
        """Autograd nodes from this number on are made in `label`."""
        self._nodes.append(number)
        self._labels.append(label)

    def of_node(self, number: int) -> Label:
        """Label of the backward of a node."""
        return self._labels[bisect_right(self._nodes, number) - 1].backward

    def at(self, event: int) -> int:
        """Index of the segment that an event is in."""
        return bisect_right(self._first_events, event) - 1
