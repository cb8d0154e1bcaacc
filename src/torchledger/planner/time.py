"""Seconds of a step: a roofline over every line of a ledger (Williams, Waterman, Patterson, CACM 52(4), 2009)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from torchledger.ledger import HARDWARE_FLOPS, MODEL_FLOPS, Ledger, Line
from torchledger.ops.roofline import demand
from torchledger.planner.rates import Rates, at


@dataclass(frozen=True, slots=True)
class LineTime:
    """How long one line takes and why.

    Attributes:
        line: the line.
        seconds: of all its times; `None` where its work or the rate is unknown.
        bound: what limits it: `compute`, `memory` or `launch`; `kernel` where the kernel itself was timed.
    """

    line: Line
    seconds: float | None
    bound: str


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds of a step, line by line.

    Attributes:
        lines: one entry for every line of the ledger, in its order.
        source: where the rates come from.
        assumptions: how it was counted.
    """

    lines: tuple[LineTime, ...]
    source: str
    assumptions: tuple[str, ...] = ()

    @property
    def step_s(self) -> float:
        """Seconds of all lines whose time is known: the least that a step takes. `unknown` names the others."""
        return sum(each.seconds for each in self.lines if each.seconds is not None)

    @property
    def unknown(self) -> tuple[Line, ...]:
        """Lines without a time: the step is longer by theirs."""
        return tuple(each.line for each in self.lines if each.seconds is None)

    @property
    def by_kernels(self) -> bool:
        """Whether most of the seconds are those of kernels that were timed themselves."""
        return self.by_bound.get("kernel", 0.0) > self.step_s / 2

    @property
    def by_phase(self) -> Mapping[str, float]:
        """Seconds by phase, in order of appearance."""
        return self._by("phase")

    @property
    def by_kind(self) -> Mapping[str, float]:
        """Seconds by kind of operation, in order of appearance."""
        return self._by("kind")

    @property
    def by_bound(self) -> Mapping[str, float]:
        """Seconds by what limits them: `compute`, `memory`, `launch`, `kernel`."""
        sums: dict[str, float] = {}
        for each in self.lines:
            sums[each.bound] = sums.get(each.bound, 0.0) + (each.seconds or 0.0)
        return sums

    def _by(self, name: str) -> dict[str, float]:
        sums: dict[str, float] = {}
        for each in self.lines:
            key = getattr(each.line, name)
            sums[key] = sums.get(key, 0.0) + (each.seconds or 0.0)
        return sums


def step_time(ledger: Ledger, rates: Rates, *, timed: Iterable[tuple[Line, float]] = ()) -> StepTime:
    """Time every line: the longer of computing and moving bytes, plus the start of the operation.

    Nothing overlaps: on one device with one stream, operations run one after the other. A line that moves no bytes
    is a part of another line's kernel (the softmax inside a fused attention) and starts nothing.

    Args:
        ledger: the lines.
        rates: how fast the machine computes and moves bytes.
        timed: lines of kernels that were timed themselves, and the seconds of one time of each: lines of the ledger
            with the same operation, sizes, format and work take those, wherever they stand.
    """
    known = {_kernel(line): seconds for line, seconds in timed}
    lines = tuple(
        _line_time(line, rates) if seconds is None else LineTime(line, seconds * line.times, "kernel")
        for line in ledger
        for seconds in (known.get(_kernel(line)),)
    )
    num_timed = sum(each.bound == "kernel" and bool(each.seconds) for each in lines)
    by_roofline = [each.line.op for each in lines if each.bound != "kernel" and each.seconds]
    roofline = "roofline: the longer of computing and moving bytes for every operation, one after the other"
    alone = "kernels one after the other, each timed by itself on zeros that no cache held"
    if num_timed:
        rest = ", ".join(dict.fromkeys(by_roofline))
        roofline = f"roofline, the longer of computing and moving bytes, for {rest}"
    words = (*((alone,) if num_timed else ()), *((roofline,) if by_roofline or not num_timed else ()))
    return StepTime(lines, rates.source, (*words, *rates.assumptions))


def _kernel(line: Line) -> tuple[object, ...]:
    """What is equal for two lines of one kernel on operands of equal sizes."""
    work = line.work
    return (line.op, line.number_format, line.shape, work.flops_full, work.flops_executed, work.bytes_moved)


def mfu(ledger: Ledger, step_s: float, peak_flops_per_s: float) -> float | None:
    """Model FLOPs utilisation: model FLOPs of a step over what the peak could do in its time.

    Recompute is left out and attention counts as the full square (PaLM, arXiv:2204.02311, appendix B).

    Returns:
        A share; `None` where the ledger does not know its FLOPs.
    """
    return _utilisation(ledger.under(MODEL_FLOPS).flops, step_s, peak_flops_per_s)


def hfu(ledger: Ledger, step_s: float, peak_flops_per_s: float) -> float | None:
    """Hardware FLOPs utilisation: what really runs, recompute included, over what the peak could do in its time."""
    return _utilisation(ledger.under(HARDWARE_FLOPS).flops, step_s, peak_flops_per_s)


def _utilisation(flops: float | None, step_s: float, peak_flops_per_s: float) -> float | None:
    return None if flops is None else flops / (step_s * peak_flops_per_s)


def _line_time(line: Line, rates: Rates) -> LineTime:
    work = line.work
    needs = demand(line)
    if needs is None or work.transcendentals is None:
        return LineTime(line, None, "unknown")
    flops, moved = needs
    flops_per_s = at(rates.flops_per_s.get(line.number_format, ()), flops) if flops else None
    bytes_per_s = _bytes_per_s(line, moved, rates)
    if (flops and flops_per_s is None) or (moved and bytes_per_s is None):
        return LineTime(line, None, "unknown")
    compute_s = flops / flops_per_s if flops_per_s else 0.0
    memory_s = moved / bytes_per_s if bytes_per_s else 0.0
    memory_s += work.transcendentals * rates.transcendental_s
    launch_s = rates.operation_s if moved or flops else 0.0
    longest = max((compute_s, "compute"), (memory_s, "memory"), (launch_s, "launch"))
    return LineTime(line, (max(compute_s, memory_s) + launch_s) * line.times, longest[1])


def _bytes_per_s(line: Line, moved: float, rates: Rates) -> float | None:
    if not moved:
        return None
    if line.kind == "optimizer" and rates.in_place_bytes_per_s is not None:
        return rates.in_place_bytes_per_s
    return at(rates.bytes_per_s, moved)
