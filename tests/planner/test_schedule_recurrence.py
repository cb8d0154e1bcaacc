import random

import pytest

from torchledger.planner.schedule import pipeline_time
from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.schedule_recurrence import full_recurrence_s, recurrence_s
from torchledger.planner.simulation import simulate

SCHEDULES = ("gpipe", "1f1b", "interleaved", "zero-bubble", "dualpipe")


def any_costs(num_stages, num_chunks, draw):
    """Costs of any size."""
    return tuple(
        tuple(ChunkCost(*(draw.uniform(0.05, 1) for _ in range(3))) for _ in range(num_chunks))
        for _ in range(num_stages)
    )


def uneven(num_stages, num_chunks, draw):
    """Chunks of n or n + 1 layers, a small embedding and a head."""
    layers = draw.randint(1, 4)
    sizes = [[layers + draw.choice((0, 1)) for _ in range(num_chunks)] for _ in range(num_stages)]
    sizes[0][0] += 0.1 * layers * draw.random()
    sizes[-1][-1] += 2 * draw.random()
    backward, weight = draw.uniform(1, 2), draw.uniform(0.5, 1)
    return tuple(tuple(ChunkCost(n, n * backward, n * weight) for n in rank) for rank in sizes)


def mirrored(costs):
    """The two chunks of each rank of DualPipe, from the parts of a model."""
    return tuple((part[0], costs[-1 - rank][0]) for rank, part in enumerate(costs))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_it_is_the_simulation(schedule):
    """Any costs, stages, chunks, micro-batches and sends: the same seconds as event by event."""
    draw = random.Random(2)
    for _ in range(60):
        num_stages = draw.choice((2, 4, 6))
        num_chunks = {"interleaved": draw.randint(2, 3), "dualpipe": 2}.get(schedule, 1)
        num_micro_batches = draw.randint(1, 14) if schedule != "dualpipe" else 2 * draw.randint(num_stages, 9)
        if schedule == "interleaved":
            num_micro_batches += num_stages
        costs = any_costs(num_stages, num_chunks, draw)
        send_s = draw.choice((0, 0.1, 1)) * draw.random()
        expected = simulate(schedule, costs, num_micro_batches, send_s).total_s
        assert full_recurrence_s(schedule, costs, num_micro_batches, send_s) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("send", "largest", "mean"), [(0, 0.02, 0.001), (1, 0.02, 0.001)])
def test_long_interleaved_steps_go_on_as_they_began(send, largest, mean):
    """Uneven chunks, 5 to 9 groups: four groups and their difference to three tell the step, within what is said."""
    draw = random.Random(3)
    found = []
    for _ in range(150):
        num_stages, num_chunks = draw.randint(2, 8), draw.randint(2, 4)
        costs = uneven(num_stages, num_chunks, draw)
        num_micro_batches = num_stages * draw.randint(5, 9)
        expected = full_recurrence_s("interleaved", costs, num_micro_batches, send)
        found.append(recurrence_s("interleaved", costs, num_micro_batches, send) / expected - 1)
    assert max(map(abs, found)) <= largest
    assert sum(map(abs, found)) / len(found) <= mean


@pytest.mark.parametrize(("send", "largest", "mean"), [(0, 0.02, 0.001), (1, 0.02, 0.001)])
def test_long_dualpipe_steps_go_on_as_they_began(send, largest, mean):
    """Parts of n or n + 1 layers, 5 to 9 times as many micro-batches as stages, odd remainders included."""
    draw = random.Random(4)
    found = []
    for _ in range(150):
        num_stages = draw.choice((2, 4, 6, 8))
        costs = mirrored(uneven(num_stages, 1, draw))
        num_micro_batches = 2 * draw.randint(5 * num_stages // 2, 9 * num_stages // 2)
        expected = full_recurrence_s("dualpipe", costs, num_micro_batches, send)
        found.append(recurrence_s("dualpipe", costs, num_micro_batches, send) / expected - 1)
    assert max(map(abs, found)) <= largest
    assert sum(map(abs, found)) / len(found) <= mean


def test_micro_batches_that_are_no_multiple_run_to_their_end():
    """Interleaved groups of another size than the stages are not extended: 4 stages, 42 micro-batches are exact."""
    costs = uneven(4, 2, random.Random(5))
    assert recurrence_s("interleaved", costs, 42, 0.1) == full_recurrence_s("interleaved", costs, 42, 0.1)
    assert pipeline_time("interleaved", costs, 42, 0.1).total_s == recurrence_s("interleaved", costs, 42, 0.1)
