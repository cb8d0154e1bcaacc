import json
import re
from dataclasses import replace

import pytest

from torchledger.view.plan_chart import memory_by_stage, plan_charts, seconds_by_stage, time_line
from torchledger.view.plan_page import plan_page


def test_the_answer_is_inside(plan):
    """The page has the question and the answer as JSON, full numbers."""
    data = json.loads(re.search(r'id="torchledger-plan">(.*?)</script>', plan_page(plan), re.DOTALL)[1])
    assert data["schema"] == "torchledger.plan/1"
    assert data["answer"]["step_s"] == plan.step_s
    assert data["question"]["strategy"]["pipeline_parallel"] == 4
    assert data["assumptions"] == ["made by hand for the tests"]


def test_nothing_is_fetched(plan):
    """The policy forbids every fetch and no element names an address."""
    html = re.sub(r"<script>.*?</script>", "", plan_page(plan), flags=re.DOTALL)
    assert "default-src 'none'" in html
    assert not re.search(r"<(?:img|link|script|iframe)[^>]+(?:src|href)=", html)


def test_every_chart_has_its_place(plan):
    """A chart's id is an element of the page."""
    html = plan_page(plan)
    for name in plan_charts(plan):
        assert f'id="{name}"' in html


def test_bars_of_a_stage_are_as_long_as_the_step(plan):
    """The stacked seconds of every stage add up to the step."""
    rows = seconds_by_stage(plan)["data"]["values"]
    for stage in range(4):
        assert sum(row["seconds"] for row in rows if row["stage"] == stage) == pytest.approx(plan.step_s)


def test_the_memory_s_end_is_a_line(plan):
    """79 GiB is where a rank's memory ends; unknown memory has no line."""
    *_, rule = memory_by_stage(plan)["layer"]
    assert rule["encoding"]["x"]["datum"] == 79
    assert len(memory_by_stage(replace(plan, capacity_bytes=None))["layer"]) == 1


def test_a_time_line_of_too_many_slots_is_not_drawn(plan):
    """4 stages of 17 slots are drawn; thousands are left to Perfetto."""
    assert len(time_line(plan)["data"]["values"]) == 4 * (8 + 8 + 1)
    many = replace(plan, stages=(replace(plan.stages[0], time_line=plan.stages[0].time_line * 300),))
    assert time_line(many) is None
    assert "chart-time-line" not in plan_charts(many)
