"""`time_lines`: a step of every stage as slots: forward and backward passes, sends, gradient reduction, optimizer."""

from __future__ import annotations

from torchledger.planner.outcome import Slot
from torchledger.planner.simulation import simulate
from torchledger.planner.step import StepCost, StepRules
from torchledger.spec import Strategy

#: Forward passes of a step, of all stages and chunks, that are simulated: about half a second. Seconds, causes and
#: bytes do not rest on the simulation; a step of a million micro-batches has no picture, and is answered all the same.
MOST_PASSES = 50_000


def num_passes(step: StepCost, rules: StepRules) -> int:
    """Forward passes of a step over all stages and chunks."""
    return rules.num_micro_batches * sum(len(chunks) for chunks in step.chunks)


def time_lines(strategy: Strategy, step: StepCost, rules: StepRules) -> tuple[tuple[Slot, ...], ...]:
    """One time line a stage, seconds from the start of the step, which ends at `step.step_s`.

    The pipeline is simulated piece by piece; where the closed form that the estimate uses is longer than that (its
    bound, `schedule`), the difference lies between the last piece and the reduction. Beyond `MOST_PASSES` they are
    empty.
    """
    if num_passes(step, rules) > MOST_PASSES:
        return ((),) * len(step.chunks)
    simulated = simulate(strategy.schedule, step.chunks, rules.num_micro_batches, step.send_s)
    found = []
    for index, slots in enumerate(simulated.time_lines):
        line = list(slots)
        at = step.gather_s[index]
        line = [Slot(s.start_s + at, s.end_s + at, s.what, s.micro_batch, s.chunk) for s in line]
        if at:
            line.insert(0, Slot(0.0, at, "gather"))
        at += max(step.pipeline.total_s, simulated.total_s)
        out_s, back_s = step.host_s
        ends = (
            ("reduce", step.reduce_s[index]),
            ("to host", out_s),
            ("optimizer", step.optimizer_s),
            ("from host", back_s),
        )
        for what, seconds in ends:
            if seconds:
                line.append(Slot(at, at + seconds, what))
                at += seconds
        found.append(tuple(line))
    return tuple(found)
