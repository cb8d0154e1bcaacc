"""`stage_seconds`: what each second of a step was for, on one pipeline stage. The causes add up to the step."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.planner.constants import Constants
from torchledger.planner.data_parallel import added_elements, gather_s, reduce_s
from torchledger.planner.fabric import Fabric
from torchledger.planner.outcome import CAUSES
from torchledger.planner.piece_cost import PieceCost
from torchledger.planner.schedule import runs_of_chunk
from torchledger.planner.stage import Block
from torchledger.planner.step import Beside, Chunk, StepCost, StepRules, beside_s
from torchledger.spec import Strategy

_COMMUNICATION = frozenset(cause for cause in CAUSES if cause.endswith("communication"))


def stage_seconds(
    stage: tuple[Chunk, ...],
    index: int,
    step: StepCost,
    strategy: Strategy,
    rules: StepRules,
    *,
    fabric: Fabric,
    constants: Constants,
) -> Mapping[str, float]:
    """Seconds by cause (`CAUSES`) of a step on stage `index`.

    What a stage waits for another one's longer end of the step is bubble too.
    """
    found = dict.fromkeys(CAUSES, 0.0)
    runs = runs_of_chunk(strategy.schedule, strategy.pipeline_parallel, rules.num_micro_batches)
    for chunk in stage:
        for block, cost, count in chunk:
            times = count * runs
            for cause, seconds in _block_seconds(cost):
                found[cause] += seconds * times
            found["memory-bound operations"] += added_elements(block, rules.data) * rules.added_s_per_element * times
            shown = beside_s(block, cost, strategy, rules, fabric=fabric, constants=constants)
            again = _gathered_again(block, shown, rules, fabric)
            found["weight gathering"] += (shown.gather_s + again) * times
            found["data parallel communication"] += (shown.reduce_s - again) * times
            found["host transfers"] += (shown.out_s + shown.back_s) * times
    pipeline = step.pipeline
    found["pipeline communication"] += pipeline.send_exposed_s
    found["weight gathering"] += step.gather_s[index]
    found["data parallel communication"] += step.reduce_s[index]
    ends = [g + r for g, r in zip(step.gather_s, step.reduce_s, strict=True)]
    found["pipeline bubble"] += pipeline.bubble_s[index] + (max(ends) - ends[index])
    found["optimizer"] += step.optimizer_s
    found["host transfers"] += sum(step.host_s)
    found["stragglers"] += step.straggler_s
    found["data and host"] += constants.step_s
    return {cause: seconds for cause, seconds in found.items() if seconds}


def _block_seconds(cost: PieceCost) -> list[tuple[str, float]]:
    """(cause, seconds) of all phases; computing that is done again is `recompute`, whatever it computes."""
    found = [*cost.forward.causes, *cost.backward.causes, *cost.weight.causes]
    for cause, seconds in cost.recompute.causes:
        found.append((cause if cause in _COMMUNICATION else "recompute", seconds))
    return found


def _gathered_again(block: Block, shown: Beside, rules: StepRules, fabric: Fabric) -> float:
    """Of what shows beside a block's backward pass, the share of its weights' second gathering."""
    if not shown.reduce_s or not (rules.data.each_layer and rules.data.reshard):
        return 0.0
    again = gather_s(block, rules.data, fabric)
    return shown.reduce_s * again / (again + reduce_s(block, rules.data, fabric))
