import random

import pytest

from torchledger.planner.schedule_closed import gpipe_s, one_by_one_s, runs_of, zero_bubble_s
from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.schedule_recurrence import full_recurrence_s

ROUNDING = 1e-12
FORMS = {"gpipe": gpipe_s, "1f1b": one_by_one_s, "zero-bubble": zero_bubble_s}


def stages(kind, count, draw):
    """Costs of stages: any; 3 layers each between an embedding and a head; or 3 or 4 layers each."""
    if kind == "any":
        return tuple((ChunkCost(*(draw.uniform(0.05, 1) for _ in range(3))),) for _ in range(count))
    layers = [draw.choice((3, 4)) if kind == "3 or 4" else 3 for _ in range(count)]
    layers[0] += 0.3 * draw.random()
    layers[-1] += 3 * draw.random()
    backward, weight = draw.uniform(1, 2), draw.uniform(0.5, 1)
    return tuple((ChunkCost(n / 3, n / 3 * backward, n / 3 * weight),) for n in layers)


def differences(schedule, kind, send, few=False, count=1000):
    """Closed form over the recurrence, less one, for drawn steps with sends of up to `send` forward passes.

    `few` draws as many micro-batches as stages at most; otherwise there are more.
    """
    draw = random.Random(0)
    found = []
    for _ in range(count):
        num_stages = draw.randint(2, 8)
        num_micro_batches = draw.randint(1, num_stages) if few else draw.randint(num_stages + 1, 4 * num_stages)
        costs, send_s = stages(kind, num_stages, draw), send * draw.random()
        closed_s = FORMS[schedule](runs_of(costs), num_micro_batches, send_s)
        found.append(closed_s / full_recurrence_s(schedule, costs, num_micro_batches, send_s) - 1)
    return found


@pytest.mark.parametrize(
    ("schedule", "kind", "send", "few"),
    [
        ("gpipe", "any", 0, False),
        ("gpipe", "any", 3, True),
        ("1f1b", "any", 0, False),
        ("1f1b", "any", 0, True),
        ("1f1b", "equal", 3, False),
        ("1f1b", "equal", 3, True),
        ("zero-bubble", "equal", 0, False),
        ("zero-bubble", "3 or 4", 0, False),
    ],
)
def test_where_a_closed_form_is_exact(schedule, kind, send, few):
    """GPipe always; 1F1B without sends, and with them between any first and last stage; ZB-H1 without sends."""
    assert max(map(abs, differences(schedule, kind, send, few))) < ROUNDING


@pytest.mark.parametrize(
    ("drawn", "largest", "mean"),
    [
        (("1f1b", "3 or 4", 1, False), 0.02, 0.0003),
        (("1f1b", "3 or 4", 1, True), 0.02, 0.0003),
        (("1f1b", "any", 1, False), 0.035, 0.0015),
        (("zero-bubble", "any", 0, False), 0.07, 0.0015),
        (("zero-bubble", "equal", 0.2, False), 0.02, 0.0003),
        (("zero-bubble", "3 or 4", 0.2, False), 0.02, 0.0003),
        (("zero-bubble", "3 or 4", 1, False), 0.075, 0.005),
    ],
)
def test_how_far_a_closed_form_falls_short(drawn, largest, mean):
    """It is never longer than the step, and shorter by at most, and in the mean, what its docstring says."""
    found = differences(*drawn)
    assert max(found) < ROUNDING
    assert -min(found) <= largest
    assert -sum(found) / len(found) <= mean


def test_equal_stages_are_one_run():
    """Stages that cost the same and follow each other are looked at once; others are not joined across a gap."""
    one, two = (ChunkCost(1, 1, 1),), (ChunkCost(2, 2, 2),)
    assert [(first, size) for first, _, size in runs_of((one, one, two, two, two, one))] == [(0, 2), (2, 3), (5, 1)]


def test_the_slowest_stage_sets_the_pace_of_1f1b():
    """A stage that takes 1 s more per micro-batch makes every micro-batch but those under way 1 s longer."""
    equal = [(ChunkCost(1, 1, 1),)] * 4
    slow = [*equal[:2], (ChunkCost(2, 1, 1),), equal[3]]
    times = [one_by_one_s(runs_of(tuple(slow)), m, 0) for m in (20, 21)]
    assert times[1] - times[0] == 2 + 1 + 1


def test_sends_show_in_the_steady_state_of_1f1b():
    """With 4 equal stages, every 4 micro-batches more take 3 sends forward and 3 sends back besides computing."""
    runs = runs_of(((ChunkCost(1, 1, 1),),) * 4)
    times = [one_by_one_s(runs, m, 0.25) for m in (40, 44)]
    assert times[1] - times[0] == pytest.approx(4 * (1 + 1 + 1) + 2 * 3 * 0.25)


def test_one_slow_stage_hides_sends():
    """Where one stage takes longer than the others with their sends, a further micro-batch costs that stage alone."""
    runs = runs_of((*((ChunkCost(1, 1, 1),),) * 3, (ChunkCost(2, 1, 1),)))
    times = [one_by_one_s(runs, m, 0.25) for m in (40, 41)]
    assert times[1] - times[0] == pytest.approx(2 + 1 + 1)
