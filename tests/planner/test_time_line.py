"""A step drawn as slots: in order, without overlap, to the end of the step."""

from dataclasses import replace
from itertools import pairwise

import pytest

from torchledger.machine import parse_cluster
from torchledger.planner.estimator import Estimator
from torchledger.planner.rules import refusals
from torchledger.planner.schedule_order import micro_batch_group
from torchledger.planner.time_line import time_lines
from torchledger.spec import AttentionSpec, MlpSpec, ModelSpec, Recipe, Strategy


def drawn(layout):
    """Time lines, cost and rules of a layout's step."""
    estimator = Estimator(layout.spec, layout.recipe, layout.cluster)
    step, rules = estimator.step(layout.strategy), estimator.rules(layout.strategy)
    return time_lines(layout.strategy, step, rules), step


def computing(line):
    """What keeps the chip busy: sends run beside it."""
    return [slot for slot in line if slot.what != "send"]


def test_slots_are_in_order_and_none_overlaps_another(layouts):
    """On every stage one thing at a time is computed, gathered or reduced, from 0 on."""
    for layout in layouts[:40]:
        for line in drawn(layout)[0]:
            assert line[0].start_s >= 0
            assert [slot.start_s for slot in line] == sorted(slot.start_s for slot in line)
            for before, after in pairwise(computing(line)):
                assert before.end_s <= after.start_s + 1e-12


def test_passes_take_what_the_step_says_they_take(layouts):
    """Forward, backward and weight gradient slots of a stage add up to its busy seconds."""
    for layout in layouts[:40]:
        lines, step = drawn(layout)
        for line, busy_s in zip(lines, step.pipeline.busy_s, strict=True):
            passes = [s for s in line if s.what in {"forward", "backward", "weight gradient"}]
            assert sum(s.end_s - s.start_s for s in passes) == pytest.approx(busy_s, rel=1e-9)


def test_the_longest_line_ends_with_the_step(layouts):
    """The last slot ends where the step does, but for stragglers and what the loop itself takes.

    The closed form of a pipeline may be shorter than its simulation by the bounds that `schedule` states: 4 % here.
    """
    for layout in layouts[:40]:
        estimator = Estimator(layout.spec, layout.recipe, layout.cluster)
        lines, step = drawn(layout)
        end = max(line[-1].end_s for line in lines)
        alone = step.step_s - step.straggler_s - estimator.constants.step_s
        assert alone * (1 - 1e-9) <= end <= alone * 1.04


@pytest.mark.parametrize("stack", ["megatron", "torchtitan", "megatron-2021"])
def test_micro_batches_that_stages_do_not_divide_run_in_larger_groups(stack):
    """Of 4 stages and 4 to 18 micro-batches, what the stack lets run takes what the same groups take event by event."""
    spec = ModelSpec("dense", 1024, 512, 8, 256, AttentionSpec(8), MlpSpec(1024))
    strategy = Strategy(stack=stack, pipeline_parallel=4, schedule="interleaved", virtual_stages=2, micro_batch_size=1)
    runs = []
    for number in range(4, 19):
        layout = spec, Recipe(batch_size=number, sequence_length=512, precision="bf16"), parse_cluster("h100x4")
        estimator = Estimator(*layout)
        if refusals(layout[0], layout[1], strategy, layout[2]):
            continue
        runs.append(number)
        step = estimator.step(strategy)
        lines = time_lines(strategy, step, estimator.rules(strategy))
        group = micro_batch_group(4, number)
        first = [slot.micro_batch for slot in lines[0] if slot.what == "forward"][: 2 * group]
        assert first == [*range(group)] * 2  # both chunks run the group before the next one
        alone = step.step_s - step.straggler_s - estimator.constants.step_s
        assert alone * (1 - 1e-9) <= max(line[-1].end_s for line in lines) <= alone * 1.04
    equal = [number for number in range(4, 19) if number % (number // 4) == 0]
    assert runs == {"megatron": [*range(4, 19)], "torchtitan": equal, "megatron-2021": [4, 8, 12, 16]}[stack]


def test_the_optimizer_comes_last_and_gathering_first(layouts):
    """Every rank updates after its gradients are reduced, and gathers weights before its first pass."""
    for layout in layouts[:40]:
        lines, step = drawn(layout)
        for index, line in enumerate(lines):
            assert line[-1].what == "optimizer"
            assert [s.what for s in line[-2:-1]] == ["reduce"] or not step.reduce_s[index]
            assert (line[0].what == "gather") == (step.gather_s[index] > 0)


def test_an_offloaded_update_goes_to_the_host_and_comes_back(layouts):
    """Gradients go out once they are reduced, the host updates, new weights come back: the last slot of every rank."""
    for layout in layouts[:20]:
        away = layout._replace(recipe=replace(layout.recipe, offload_optimizer=True))
        lines, step = drawn(away)
        for line in lines:
            assert [slot.what for slot in line[-3:]] == ["to host", "optimizer", "from host"]
            lengths = [slot.end_s - slot.start_s for slot in line[-3:]]
            assert lengths == pytest.approx([step.host_s[0], step.optimizer_s, step.host_s[1]])
            assert line[-4].end_s <= line[-3].start_s + 1e-12
