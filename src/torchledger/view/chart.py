"""Charts as Vega-Lite 6 specifications: plain dicts, so a test can read them and a notebook can show them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, get_args

from torchledger.ledger import Ledger
from torchledger.ledger.line import Phase

Chart: TypeAlias = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
# A layer's own data, or a line across would be drawn once for every row of the curve.
_ONCE: Chart = {"values": [{}]}
_ROW_HEIGHT = 20
_ORDER = get_args(Phase)
_STEP: Chart = {"field": "step", "type": "quantitative", "title": "step", "axis": {"tickCount": 6}}


def loss_curve(metrics: Iterable[Mapping[str, Any]], *, levels: Mapping[str, float] | None = None) -> Chart:
    """Training and validation loss over the steps.

    Args:
        metrics: rows with `step` and `loss` or `validation_loss`, in nats per token.
        levels: named losses drawn as lines across: the unigram entropy, the logarithm of the vocabulary.
    """
    names = {"loss": "training", "validation_loss": "validation"}
    rows = [
        {"step": row["step"], "loss": _finite(row[key]), "of": name}
        for row in metrics
        for key, name in names.items()
        if row.get(key) is not None
    ]
    layers: list[Chart] = [
        {
            "mark": {"type": "line", "point": {"filled": True, "size": 16}, "tooltip": True},
            "encoding": {
                "x": _STEP,
                "y": {"field": "loss", "type": "quantitative", "title": "nats a token", "scale": {"zero": False}},
                "color": {"field": "of", "type": "nominal", "title": None},
            },
        }
    ]
    layers += [layer for name, value in (levels or {}).items() for layer in _level(name, value)]
    return {**_chart("loss"), "data": {"values": rows}, "layer": layers}


def throughput_curve(metrics: Iterable[Mapping[str, Any]]) -> Chart:
    """Tokens per second over the steps."""
    return _curve(metrics, "tokens_per_s", "tokens per second", "throughput")


def mfu_curve(metrics: Iterable[Mapping[str, Any]]) -> Chart:
    """Model FLOPs utilisation over the steps."""
    chart = _curve(metrics, "mfu", "MFU", "model FLOPs utilisation")
    chart["encoding"]["y"]["axis"] = {"format": "%"}
    return chart


def memory_curve(
    outline: Sequence[tuple[int, int]],
    *,
    peak: tuple[int, int] | None = None,
    marks: Mapping[str, int] | None = None,
    title: str = "memory over the steps",
) -> Chart:
    """Live bytes over the events of a step or more.

    Args:
        outline: points (events that happened, live bytes), as `Timeline.outline` gives them.
        peak: the highest point, marked.
        marks: named positions (`step 2` begins after that many events), drawn as lines from top to bottom.
        title: above the chart.
    """
    scale, unit = _unit(max((num_bytes for _, num_bytes in outline), default=0))
    x: Chart = {"field": "event", "type": "quantitative", "title": "allocations and frees", "axis": {"tickCount": 6}}
    y: Chart = {"field": "held", "type": "quantitative", "title": unit}
    layers: list[Chart] = [
        {
            "data": {"values": [{"event": event, "held": num_bytes / scale} for event, num_bytes in outline]},
            "mark": {"type": "area", "interpolate": "step-after", "line": True, "opacity": 0.35, "tooltip": True},
            "encoding": {"x": x, "y": y},
        }
    ]
    if peak is not None:
        layers.append(
            {
                "data": {"values": [{"event": peak[0], "held": peak[1] / scale}]},
                "mark": {"type": "point", "filled": True, "size": 60, "color": "#d62728", "tooltip": True},
                "encoding": {"x": x, "y": y},
            }
        )
    for name, event in (marks or {}).items():
        layers += _upright(name, event)
    return {**_chart(title), "layer": layers}


def flops_by_part(ledger: Ledger, *, depth: int = 3, title: str = "FLOPs by part") -> Chart:
    """FLOPs of a step by module and phase, as stacked bars. Parts without FLOPs or with unknown ones are left out."""
    rows = []
    for (module, phase), group in _by_module_and_phase(ledger, depth):
        flops = group.flops
        if flops:
            rows.append({"module": module or "(step)", "phase": phase, "order": _ORDER.index(phase), "flops": flops})
    return {
        **_chart(title),
        "height": _ROW_HEIGHT * len({row["module"] for row in rows}),
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {"field": "module", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260}},
            "x": {"field": "flops", "type": "quantitative", "title": "FLOP", "axis": {"format": "~s"}},
            "color": {"field": "phase", "type": "nominal", "sort": None, "title": None},
            "order": {"field": "order", "type": "quantitative"},
        },
    }


def memory_by_part(parts: Mapping[str, int], *, title: str = "memory at the peak") -> Chart:
    """Bytes at the peak by part, as one bar each."""
    scale, unit = _unit(max(parts.values(), default=0))
    rows = [{"part": part, "held": num_bytes / scale} for part, num_bytes in parts.items() if num_bytes]
    return {
        **_chart(title),
        "height": _ROW_HEIGHT * len(rows),
        "data": {"values": rows},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": {
            "y": {"field": "part", "type": "nominal", "sort": "-x", "title": None, "axis": {"labelLimit": 260}},
            "x": {"field": "held", "type": "quantitative", "title": unit},
        },
    }


def _by_module_and_phase(ledger: Ledger, depth: int) -> Iterable[tuple[tuple[str, str], Ledger]]:
    return ledger.by("module", "phase", depth=depth).items()


def _curve(metrics: Iterable[Mapping[str, Any]], key: str, title: str, name: str) -> Chart:
    rows = [{"step": row["step"], key: _finite(row[key])} for row in metrics if row.get(key) is not None]
    return {
        **_chart(name),
        "data": {"values": rows},
        "mark": {"type": "line", "point": {"filled": True, "size": 16}, "tooltip": True},
        "encoding": {
            "x": _STEP,
            "y": {"field": key, "type": "quantitative", "title": title},
        },
    }


def _level(name: str, value: float) -> tuple[Chart, Chart]:
    y = {"datum": value, "type": "quantitative"}
    return (
        {"data": _ONCE, "mark": {"type": "rule", "strokeDash": [4, 4], "opacity": 0.6}, "encoding": {"y": y}},
        {
            "data": _ONCE,
            "mark": {"type": "text", "align": "right", "baseline": "bottom", "dy": -3, "x": "width", "text": name},
            "encoding": {"y": y},
        },
    )


def _upright(name: str, event: int) -> tuple[Chart, Chart]:
    encoding = {"x": {"datum": event, "type": "quantitative"}}
    return (
        {"data": _ONCE, "mark": {"type": "rule", "strokeDash": [4, 4], "opacity": 0.6}, "encoding": encoding},
        {
            "data": _ONCE,
            "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 4, "y": 0, "text": name},
            "encoding": encoding,
        },
    )


def _unit(largest_bytes: float) -> tuple[int, str]:
    """The binary unit to draw an amount in: at least one of it, if there is one so small."""
    units = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
    return next((unit for unit in units if largest_bytes >= unit[0]), (1, "B"))


def _chart(title: str) -> Chart:
    return {"$schema": SCHEMA, "title": title, "width": "container", "height": 240}


def _finite(value: float) -> float | None:
    """JSON has no NaN: a loss that is none leaves a gap in the curve."""
    return value if math.isfinite(value) else None
