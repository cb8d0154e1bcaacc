import random
import time
from itertools import pairwise

import pytest

from torchledger.planner.schedule import in_flight
from torchledger.planner.schedule_cost import ChunkCost
from torchledger.planner.schedule_order import neighbours
from torchledger.planner.simulation import simulate

CASES = [
    ("gpipe", 4, 1, 6),
    ("1f1b", 4, 1, 8),
    ("1f1b", 5, 1, 3),
    ("interleaved", 4, 2, 8),
    ("interleaved", 4, 3, 9),
    ("interleaved", 4, 2, 4),
    ("zero-bubble", 4, 1, 8),
    ("zero-bubble", 5, 1, 3),
    ("dualpipe", 4, 2, 12),
]


def drawn(num_stages, num_chunks, seed=0):
    draw = random.Random(seed)
    return tuple(
        tuple(ChunkCost(*(draw.uniform(0.1, 1) for _ in range(3))) for _ in range(num_chunks))
        for _ in range(num_stages)
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_rank_computes_one_piece_at_a_time(case):
    """On each rank's time line no two pieces of computing overlap; nor do two sends to the same rank."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    step = simulate(schedule, drawn(num_stages, num_chunks), num_micro_batches, 0.3)
    before, after = neighbours(schedule, num_stages, num_chunks)
    for rank, line in enumerate(step.time_lines):
        kinds = {"computes": [slot for slot in line if slot.what != "send"]}
        for slot in line:
            if slot.what == "send":
                forward = _sent_forward(slot, line)
                other = (after if forward else before)[rank, slot.chunk][0]
                kinds.setdefault(f"to {other}", []).append(slot)
        for slots in kinds.values():
            assert all(a.end_s <= b.start_s + 1e-12 for a, b in pairwise(slots))


def _sent_forward(send, line):
    """Whether a send follows the forward pass: it starts before the backward pass of the same piece ends."""
    (backward,) = (
        s for s in line if s.what == "backward" and (s.micro_batch, s.chunk) == (send.micro_batch, send.chunk)
    )
    return send.start_s < backward.end_s - 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("send_s", [0, 0.2])
def test_nothing_starts_before_its_input_has_arrived(case, send_s):
    """A pass starts after the same pass of the rank before it has ended and, sent on, arrived."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    step = simulate(schedule, drawn(num_stages, num_chunks), num_micro_batches, send_s)
    when = {
        (rank, slot.chunk, slot.micro_batch, slot.what): slot
        for rank, line in enumerate(step.time_lines)
        for slot in line
        if slot.what != "send"
    }
    before, after = neighbours(schedule, num_stages, num_chunks)
    for (rank, chunk, micro_batch, what), slot in when.items():
        source = {"forward": before, "backward": after}.get(what, {}).get((rank, chunk))
        if source:
            ended_s = when[*source, micro_batch, what].end_s
            assert slot.start_s >= ended_s + send_s - 1e-12 or schedule == "dualpipe"
        if what == "backward":
            assert slot.start_s >= when[rank, chunk, micro_batch, "forward"].end_s - 1e-12
        if what == "weight gradient":
            assert slot.start_s >= when[rank, chunk, micro_batch, "backward"].end_s - 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_rank_does_all_of_its_work(case):
    """Busy seconds of a rank are micro-batches times its chunks; half of the micro-batches each for dualpipe."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    costs = drawn(num_stages, num_chunks)
    share = 0.5 if schedule == "dualpipe" else 1
    expected = [share * num_micro_batches * sum(map(sum, rank)) for rank in costs]
    assert simulate(schedule, costs, num_micro_batches, 0.1).busy_s == pytest.approx(expected)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_in_flight_is_what_the_simulation_counts(case):
    """The closed form of micro-batches in flight is the count of the order that is run."""
    schedule, num_stages, num_chunks, num_micro_batches = case
    step = simulate(schedule, drawn(num_stages, num_chunks), num_micro_batches)
    assert in_flight(*case) == step.in_flight


def test_two_stages_by_hand():
    """2 stages, 2 micro-batches, F 1 s, B 2 s, send 1/2 s: every start and end by hand."""
    first, last = simulate("1f1b", ((ChunkCost(1, 1, 1),),) * 2, 2, 0.5).time_lines
    shown = [(slot.what, slot.micro_batch, slot.start_s, slot.end_s) for slot in last if slot.what != "send"]
    assert shown == [
        ("forward", 0, 1.5, 2.5),
        ("backward", 0, 2.5, 4.5),
        ("forward", 1, 4.5, 5.5),
        ("backward", 1, 5.5, 7.5),
    ]
    assert (first[-1].what, first[-1].start_s, first[-1].end_s) == ("backward", 8.0, 10.0)


def test_messages_queue_on_a_link():
    """Where a send takes longer than a forward pass, the second message leaves when the first has arrived."""
    line = simulate("gpipe", ((ChunkCost(1, 1, 1),),) * 2, 2, 3).time_lines[0]
    assert [(slot.start_s, slot.end_s) for slot in line if slot.what == "send"] == [(1, 4), (4, 7)]


def test_16_stages_of_16_chunks_and_256_micro_batches_take_seconds():
    """The largest step that is planned: 131,072 pieces and their sends in under 10 s of this process."""
    costs = ((ChunkCost(1, 1, 1),) * 16,) * 16
    start = time.process_time()
    step = simulate("interleaved", costs, 256, 0.1)
    assert time.process_time() - start < 10
    assert sum(slot.what != "send" for line in step.time_lines for slot in line) == 2 * 16 * 16 * 256
