"""Charts of a plan as Vega-Lite specifications: seconds and bytes by stage, the time line, the fronts of a search."""

from __future__ import annotations

from collections.abc import Mapping

from torchledger.planner.outcome import CAUSES, PARTS, Plan, Slot
from torchledger.planner.search import Found
from torchledger.planner.search_kept import Candidate
from torchledger.view.chart import SCHEMA, Chart
from torchledger.view.plan_search import layout_text

_GIB = 2**30
_ROW_HEIGHT = 20
#: Slots of a time line that are drawn; a browser is slow with more.
_MOST_SLOTS = 4000
_ONCE: Chart = {"values": [{}]}


def seconds_by_stage(plan: Plan) -> Chart:
    """Seconds of a step of every stage by cause, as stacked bars that are all as long as the step."""
    rows = [
        {"stage": each.stage.index, "cause": cause, "order": CAUSES.index(cause), "seconds": seconds}
        for each in plan.stages
        for cause, seconds in each.seconds.items()
        if seconds
    ]
    return {
        **_chart("seconds of a step by cause", len(plan.stages)),
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": _stacked("cause", "seconds", "seconds"),
    }


def memory_by_stage(plan: Plan) -> Chart:
    """Memory of every stage by part, as stacked bars, with a line where a rank's memory ends."""
    rows = [
        {"stage": each.stage.index, "part": part, "order": PARTS.index(part), "held": num_bytes / _GIB}
        for each in plan.stages
        for part, num_bytes in each.memory.parts.items()
        if num_bytes
    ]
    layers: list[Chart] = [
        {
            "data": {"values": rows},
            "mark": {"type": "bar", "tooltip": True},
            "encoding": _stacked("part", "held", "GiB"),
        }
    ]
    if plan.capacity_bytes is not None:
        layers.append(
            {
                "data": _ONCE,
                "mark": {"type": "rule", "strokeDash": [4, 4]},
                "encoding": {"x": {"datum": plan.capacity_bytes / _GIB, "type": "quantitative"}},
            }
        )
    return {**_chart("memory of a rank by part", len(plan.stages)), "layer": layers}


def time_line(plan: Plan) -> Chart | None:
    """Slots of every stage over a step; nothing where there are too many to draw."""
    rows = [_slot(each.stage.index, slot) for each in plan.stages for slot in each.time_line if slot.what != "send"]
    if not rows or len(rows) > _MOST_SLOTS:
        return None
    return {
        **_chart("time line of a step", len(plan.stages)),
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True, "stroke": "white", "strokeWidth": 0.5},
        "encoding": {
            "y": {"field": "stage", "type": "ordinal", "title": "stage"},
            "x": {"field": "start", "type": "quantitative", "title": "seconds"},
            "x2": {"field": "end"},
            "color": {"field": "what", "type": "nominal", "sort": None, "title": None},
            "tooltip": [{"field": name} for name in ("what", "micro_batch", "chunk", "start", "end")],
        },
    }


def memory_front(found: Found) -> Chart:
    """Every ranked layout by seconds and memory; those on the front are joined."""
    rows = [_point(each, "front", found) for each in found.pareto_memory]
    rows += [_point(each, "ranked", found) for each in found.best if each not in found.pareto_memory]
    x: Chart = {"field": "seconds", "type": "quantitative", "title": "seconds of a step", "scale": {"zero": False}}
    y: Chart = {"field": "held", "type": "quantitative", "title": "GiB of a rank", "scale": {"zero": False}}
    color: Chart = {"field": "of", "type": "nominal", "title": None}
    tip = [{"field": name} for name in ("layout", "seconds", "held")]
    return {
        **_chart("time against memory", 12),
        "data": {"values": rows},
        "layer": [
            {
                "transform": [{"filter": "datum.of === 'front'"}],
                "mark": {"type": "line", "interpolate": "step-after", "opacity": 0.5},
                "encoding": {"x": x, "y": y},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 50},
                "encoding": {"x": x, "y": y, "color": color, "tooltip": tip},
            },
        ],
    }


def plan_charts(plan: Plan, found: Found | None = None) -> Mapping[str, Chart]:
    """The charts that there is data for, by the id of their place."""
    charts = {"chart-seconds": seconds_by_stage(plan), "chart-memory": memory_by_stage(plan)}
    drawn = time_line(plan)
    if drawn is not None:
        charts["chart-time-line"] = drawn
    if found is not None and len(found.best) > 1:
        charts["chart-front"] = memory_front(found)
    return charts


def _point(each: Candidate, of: str, found: Found) -> dict[str, object]:
    return {
        "of": of,
        "layout": layout_text(each, found),
        "seconds": each.estimate.step_s,
        "held": each.estimate.peak_bytes / _GIB,
    }


def _slot(stage: int, slot: Slot) -> dict[str, object]:
    return {
        "stage": stage,
        "what": slot.what,
        "micro_batch": slot.micro_batch,
        "chunk": slot.chunk,
        "start": slot.start_s,
        "end": slot.end_s,
    }


def _stacked(name: str, amount: str, title: str) -> Chart:
    return {
        "y": {"field": "stage", "type": "ordinal", "title": "stage"},
        "x": {"field": amount, "type": "quantitative", "title": title},
        "color": {"field": name, "type": "nominal", "sort": None, "title": None},
        "order": {"field": "order", "type": "quantitative"},
    }


def _chart(title: str, rows: int) -> Chart:
    return {"$schema": SCHEMA, "title": title, "width": "container", "height": max(60, _ROW_HEIGHT * rows)}
