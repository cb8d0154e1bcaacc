import random
import timeit

import pytest

from torchledger.planner.schedule import in_flight, parts, pipeline_time, schedule_refusals
from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.simulation import simulate

ONE = ChunkCost(1, 1, 1)
CASES = [
    ("gpipe", 4, 1, 8),
    ("gpipe", 4, 1, 2),
    ("1f1b", 4, 1, 8),
    ("1f1b", 4, 1, 3),
    ("interleaved", 4, 2, 8),
    ("interleaved", 4, 3, 10),
    ("interleaved", 4, 2, 4),
    ("zero-bubble", 4, 1, 8),
    ("zero-bubble", 4, 1, 4),
    ("dualpipe", 4, 2, 12),
]


def model(schedule, num_stages, num_chunks):
    """Equal layers between an embedding and a head: what the ranks hold of it."""
    held = parts(schedule, num_stages, num_chunks)
    last = max(part for rank in held for part in rank)
    cost = dict.fromkeys(range(last + 1), ONE) | {0: ChunkCost(1.05, 1.05, 1.05), last: ChunkCost(1.5, 1.4, 1.5)}
    return tuple(tuple(cost[part] for part in rank) for rank in held)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("send_s", [0, 0.1])
def test_the_answer_is_the_simulations(case, send_s):
    """Equal layers between an embedding and a head: total, busy and bubble seconds are those of the simulation."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    costs = model(schedule, num_stages, num_chunks)
    time = pipeline_time(schedule, costs, num_micro_batches, send_s)
    step = simulate(schedule, costs, num_micro_batches, send_s)
    without = simulate(schedule, costs, num_micro_batches).total_s
    assert time.total_s == pytest.approx(step.total_s)
    assert time.busy_s == pytest.approx(step.busy_s)
    assert time.bubble_s == pytest.approx([without - busy_s for busy_s in step.busy_s])
    assert time.send_exposed_s == pytest.approx(step.total_s - without)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_rank_adds_up(case):
    """Busy, bubble and exposed seconds of each rank are the step, and none is negative."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    draw = random.Random(0)
    for _ in range(20):
        costs = tuple(
            tuple(ChunkCost(*(draw.uniform(0.1, 1) for _ in range(3))) for _ in range(num_chunks))
            for _ in range(num_stages)
        )
        time = pipeline_time(schedule, costs, num_micro_batches, draw.choice((0, 0.3)))
        for busy_s, bubble_s in zip(time.busy_s, time.bubble_s, strict=True):
            assert time.total_s == pytest.approx(busy_s + bubble_s + time.send_exposed_s)
            assert min(busy_s, bubble_s, time.send_exposed_s) >= 0


def test_one_stage_is_no_pipeline():
    """One rank computes all the time and sends nothing, whatever the schedule."""
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        assert pipeline_time(schedule, ((ONE,),), 8, 1.0) == (8 * 3, (8 * 3,), (0,), 0)


def test_it_takes_microseconds():
    """1F1B of 8 stages in under 50 microseconds, with sends under 100 (measured: 4 and 12), on a busy machine too."""
    costs = model("1f1b", 8, 1)
    for send_s, limit_s in ((0, 50e-6), (0.1, 100e-6)):
        best_s = min(timeit.repeat(lambda s=send_s: pipeline_time("1f1b", costs, 64, s), number=200, repeat=5)) / 200
        assert best_s < limit_s


@pytest.mark.parametrize("num_stages", [2, 4, 6, 8])
def test_in_flight_for_any_number_of_micro_batches(num_stages):
    """The closed forms count what the order of each rank counts, few micro-batches and many."""
    for schedule, num_chunks, counts in (
        ("gpipe", 1, range(1, 12)),
        ("1f1b", 1, range(1, 12)),
        ("zero-bubble", 1, range(1, 12)),
        ("interleaved", 2, range(num_stages, 3 * num_stages)),
        ("interleaved", 4, range(num_stages, 3 * num_stages)),
        ("dualpipe", 2, range(2 * num_stages, 4 * num_stages, 2)),
    ):
        costs = ((ONE,) * num_chunks,) * num_stages
        for num_micro_batches in counts:
            counted = simulate(schedule, costs, num_micro_batches).in_flight
            assert in_flight(schedule, num_stages, num_chunks, num_micro_batches) == counted


def test_parts_are_placed_once():
    """Every part of the model is on one rank, and on two with dualpipe."""
    assert parts("1f1b", 3, 1) == ((0,), (1,), (2,))
    assert sorted(part for rank in parts("interleaved", 4, 3) for part in rank) == list(range(12))
    assert sorted(part for rank in parts("dualpipe", 4, 1) for part in rank) == sorted([*range(4), *range(4)])


def test_fewer_micro_batches_than_stages_are_answered():
    """2 micro-batches on 8 stages: two ways through 8 stages, the second one behind the first."""
    time = pipeline_time("1f1b", ((ONE,),) * 8, 2)
    assert time.total_s == (8 + 2 - 1) * 3


@pytest.mark.parametrize(
    ("question", "words"),
    [
        (("1f1b", 4, 1, 1), ()),
        (("gpipe", 1, 1, 1), ()),
        (("zero-bubble", 4, 1, 2), ()),
        (("interleaved", 4, 2, 6), ()),
        (("dualpipe", 4, 1, 8), ()),
        (("gpipe", 4, 2, 8), ("virtual_stages to 1",)),
        (("interleaved", 1, 2, 8), ("needs a pipeline",)),
        (("interleaved", 4, 1, 2), ("set virtual_stages", "take 4")),
        (("dualpipe", 3, 1, 4), ("even number of stages", "take 6")),
        (("dualpipe", 4, 1, 9), ("take 10",)),
        (("dualpipe", 4, 4, 8), ("virtual_stages to 1",)),
    ],
    ids=str,
)
def test_refusals_say_what_to_do(question, words):
    """Each mistake is one sentence with its remedy; what runs has none."""
    reasons = schedule_refusals(*question)
    assert len(reasons) == len(words)
    assert all(word in reason for word, reason in zip(words, reasons, strict=True))


def test_older_stacks_want_multiples():
    """Stacks without micro-batch groups run interleaved schedules with multiples of the stages only."""
    (reason,) = schedule_refusals("interleaved", 4, 2, 6, groups="stages")
    assert "a multiple of 4 micro-batches" in reason
    assert "take 8" in reason
