import json
from dataclasses import replace
from itertools import pairwise

import pytest

from torchledger.planner.outcome import Slot
from torchledger.view.timeline import lanes, trace_events, trace_json


def complete(plan, stage=None):
    """The complete events, of one stage or of all."""
    events = [event for event in trace_events(plan)["traceEvents"] if event["ph"] == "X"]
    return [event for event in events if stage is None or event["pid"] == stage]


def test_every_stage_is_a_process_with_its_name(plan):
    """Perfetto shows one track group a stage, in the order of the pipeline."""
    names = [e["args"]["name"] for e in trace_events(plan)["traceEvents"] if e["name"] == "process_name"]
    assert names == ["stage 0", "stage 1", "stage 2", "stage 3"]


def test_events_of_a_thread_do_not_overlap(plan):
    """Complete events of one thread must nest; ours follow each other."""
    threads = {}
    for event in complete(plan):
        threads.setdefault((event["pid"], event["tid"]), []).append(event)
    for events in threads.values():
        events.sort(key=lambda event: event["ts"])
        for before, after in pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-3


def test_lengths_add_up_to_the_busy_time(plan):
    """All slots of a stage last as long as its step without the bubble: 8 · (0.1 + 0.2) s + 0.05 s."""
    for stage in plan.stages:
        busy_us = sum(event["dur"] for event in complete(plan, stage.stage.index))
        assert busy_us == pytest.approx((8 * (0.1 + 0.2) + 0.05) * 1e6)
        assert busy_us == pytest.approx((plan.step_s - stage.seconds["pipeline bubble"]) * 1e6)


def test_the_last_event_ends_with_the_step(plan):
    """The trace is as long as the step."""
    assert max(event["ts"] + event["dur"] for event in complete(plan)) == pytest.approx(plan.step_s * 1e6)


def test_the_counter_rises_to_what_is_in_flight_and_comes_back(plan):
    """GPipe keeps the activations of all 8 micro-batches, 64 MiB in each of a stage's blocks, and gives all back."""
    for stage, blocks in ((0, 4), (1, 3), (3, 4)):
        values = [
            event["args"]["bytes"]
            for event in trace_events(plan)["traceEvents"]
            if event["ph"] == "C" and event["pid"] == stage
        ]
        assert max(values) == 8 * blocks * 64 * 2**20
        assert values[-1] == 0


def test_what_runs_beside_the_computing_has_its_own_thread():
    """A send overlaps the next forward pass; two sends at once take two threads."""
    slots = (Slot(0, 2, "forward", 0), Slot(1, 3, "send", 0), Slot(2, 4, "forward", 1), Slot(2, 5, "send", 1))
    assert list(lanes(slots)) == ["compute", "pipeline sends", "pipeline sends 2"]


def test_weight_gradients_apart_keep_the_activations_longer(plan):
    """Where weight gradients are computed apart, activations stay until they are done."""
    line = (Slot(0, 1, "forward", 0), Slot(1, 2, "backward", 0), Slot(5, 6, "weight gradient", 0))
    one = replace(plan, stages=(replace(plan.stages[0], time_line=line),))
    counted = [e for e in trace_events(one)["traceEvents"] if e["ph"] == "C"]
    assert [event["ts"] for event in counted] == [0, 6e6]


def test_the_file_is_json(plan):
    """What is written reads back, with the question beside the events."""
    document = json.loads(trace_json(plan))
    assert document["otherData"]["num_chips"] == 8
    assert document["displayTimeUnit"] == "ms"


def test_copies_to_the_host_have_a_thread_of_their_own():
    """Gradients out and weights back are drawn beside the computing stream, in one thread."""
    slots = (Slot(0, 2, "to host"), Slot(2, 3, "optimizer"), Slot(3, 4, "from host"))
    assert {name: len(found) for name, found in lanes(slots).items()} == {"compute": 1, "host transfers": 2}
