"""The precision audit drawn: exponents of each kind of tensor, what formats lose of them, updates, scales, checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torchledger.ledger import AuditRecord
from torchledger.units import format_number, format_percent, group_digits
from torchledger.view.chart import SCHEMA, Chart
from torchledger.view.screen import Bar, Bars, Block, Row, Table

__all__ = ["blocks", "charts"]

_FORMATS = {"bf16": "BF16", "fp16": "FP16", "fp8_e5m2": "E5M2 ×s", "fp8_e4m3": "E4M3 ×s"}
_HEIGHTS = "▁▂▃▄▅▆▇█"
_COLUMNS = 34  # of a histogram in a terminal
_WORST = 8  # rows of a table that has one for each layer
_SMALLEST_SHARE = 0.0005  # that is told in digits
_FP16_SMALLEST, _FP16_LARGEST = -24, 15  # exponents of its smallest subnormal and its largest number


def blocks(record: AuditRecord) -> Iterator[Block]:
    """What a terminal shows."""
    kinds = record.tables.get("kinds", ())
    if kinds:
        yield _histograms(kinds)
        yield _losses(kinds)
    yield from _updates(record.tables.get("updates", ()))
    yield from _logits(record.tables.get("logits", ()))
    yield from _softmaxes(record.tables.get("softmaxes", ()))
    yield from _scales(record.tables.get("loss_scales", ()))
    yield from _kept(record.tables.get("kept", ()))
    yield from _checks(record.tables.get("checks", ()))


def _histograms(kinds: Iterable[Mapping[str, Any]]) -> Table:
    rows = tuple(kinds)
    found = [exponent for row in rows for exponent, _ in row["exponents"]]
    low, high = min(found, default=0), max(found, default=0)
    low = max(low, high - _COLUMNS * 2)
    step = max(1, math.ceil((high - low + 1) / _COLUMNS))
    drawn = tuple(
        Row(
            (
                row["kind"],
                group_digits(row["elements"]),
                _share(row["zeros"] / row["elements"] if row["elements"] else 0.0),
                group_digits(row["infinities"] + row["nans"]),
                _spark(dict(row["exponents"]), low, high, step),
                f"{row['largest']:.3g}",
            ),
            mark="bad" if row["infinities"] + row["nans"] else "",
        )
        for row in rows
    )
    title = f"<exponents from 2^{low} to 2^{high}"
    note = f"each column is {step} power{'s' if step > 1 else ''} of two, its height the logarithm of how many"
    return Table(("<kind", "numbers", "zero", "inf, NaN", title, "largest"), drawn, "numbers of a step", note)


def _spark(counts: Mapping[int, int], low: int, high: int, step: int) -> str:
    """A histogram in one line, a column for `step` powers of two; smaller numbers than drawn are in the first."""
    columns = [0] * ((high - low) // step + 1)
    for exponent, number in counts.items():
        columns[max(0, exponent - low) // step] += number
    most = math.log1p(max(columns))
    return "".join(
        _HEIGHTS[min(len(_HEIGHTS) - 1, int(math.log1p(number) / most * len(_HEIGHTS)))] if number else " "
        for number in columns
    )


def _losses(kinds: Iterable[Mapping[str, Any]]) -> Table:
    columns = tuple(f"{title} {what}" for title in _FORMATS.values() for what in ("→0", "fewer digits"))
    rows = tuple(
        Row(
            (
                row["kind"],
                *(_share(row[f"{name}_{what}"]) for name in _FORMATS for what in ("to_zero", "subnormal")),
                _share(row["fp16_overflow"]),
                row["worst_in_fp16"],
            ),
            mark="bad" if row["fp16_overflow"] else "",
        )
        for row in kinds
    )
    note = (
        "shares of numbers that round to 0, or keep fewer digits as subnormals; ×s: each tensor with a scale of its "
        "own, a power of two that brings its largest number just within the format; no loss scale"
    )
    optional = tuple(f"{title} fewer digits" for title in reversed(_FORMATS.values()))
    titles = ("<kind", *columns, "FP16 →inf", "<most lost in FP16")
    return Table(titles, rows, "what each format loses", note, ("most lost in FP16", *optional))


def _updates(updates: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    rows = tuple(updates)
    if not rows:
        return
    is_stored = any(row["stored"] in {"BF16", "FP16"} for row in rows)
    worst = sorted(rows, key=lambda row: (-row["frozen_share"], -row["frozen_share_bf16"]))[:_WORST]
    drawn = tuple(
        Row(
            (
                row["parameter"],
                row["stored"] + (" + FP32 copy" if row["master"] else ""),
                _share(row["frozen_share"]) if is_stored else "none",
                _share(row["frozen_share_bf16"]),
                _share(row["frozen_share_fp16"]),
                "none" if row["ratio"] is None else format_number(row["ratio"], 2),
            )
        )
        for row in worst
    )
    left = len(rows) - len(worst)
    note = "an update of at most half a unit in the last place of its weight changes nothing"
    note += f"; {left} more parameters lose no more" if left else ""
    columns = ("<parameter", "<stored in", "lost", "if BF16", "if FP16", "update / weight")
    yield Table(columns, drawn, "updates that are lost", note)


def _logits(logits: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    rows = sorted(logits, key=lambda row: -row["largest"])[:_WORST]
    if not rows:
        return
    longest = max(math.log1p(row["largest"]) for row in rows) or 1.0
    bars = tuple(
        Bar(
            row["place"],
            math.log1p(row["largest"]) / longest,
            f"{row['largest']:.4g}"
            + ("" if row["before_scaling"] is None else f" ({row['before_scaling']:.4g} before scaling)"),
        )
        for row in rows
    )
    yield Bars(bars, "largest attention logits", "FP16 ends at 65,504; lengths are logarithms")


def _softmaxes(softmaxes: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    rows = sorted(softmaxes, key=lambda row: (-(row["off"] or 0.0), -row["length"], row["is_log"]))[:_WORST]
    drawn = tuple(
        Row(
            (
                row["place"],
                row["operation"],
                group_digits(row["length"]),
                row["format"],
                "none" if row["off"] is None else f"{row['off']:.2g}",
                _sum(row.get("sum_bf16")),
                _sum(row.get("sum_fp16")),
            )
        )
        for row in rows
    )
    note = "off: how far a row's sum is from 1, or a logarithm from FP32's; summed: added one number after the other"
    columns = ("<module", "<operation", "row", "<result in", "off", "summed in BF16", "summed in FP16")
    if drawn:
        yield Table(columns, drawn, "softmaxes", note, ("result in", "off"))


def _sum(total: float | None) -> str:
    return "none" if total is None else f"{total:.4f}"


def _scales(scales: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    rows = tuple(scales)
    best = max((row["exponent"] for row in rows if not row["overflows"]), default=None)
    drawn = tuple(
        Row(
            (
                f"2^{row['exponent']}",
                _share(row["to_zero_share"]),
                _share(row["subnormal_share"]),
                "overflows" if row["overflows"] else "fits",
            ),
            mark="good" if row["exponent"] == best else "bad" if row["overflows"] else "",
        )
        for row in rows
    )
    if drawn:
        columns = ("loss scale", "gradients → 0", "fewer digits", "<largest gradient")
        yield Table(columns, drawn, "loss scales for FP16")


def _kept(kept: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    drawn = tuple(Row((row["place"], row["reason"])) for row in kept)
    if drawn:
        yield Table(("<module", "<why"), drawn, "modules that stay in FP32")


def _checks(checks: Iterable[Mapping[str, Any]]) -> Iterator[Block]:
    drawn = tuple(
        Row(
            (
                row["which"],
                row["recipe"],
                _difference(row["loss_difference"]),
                _cosine(row["gradient_cosine"]),
                _difference(row["gradient_difference"]),
                _cosine(row["update_cosine"]),
                "yes" if row["holds"] else "no",
            ),
            mark="good" if row["holds"] else "bad",
        )
        for row in checks
    )
    if drawn:
        columns = ("<step", "<recipe", "loss off", "gradient cosine", "gradient off", "update cosine", "<holds")
        yield Table(columns, drawn, "steps against FP32", optional=("gradient off",))


def _cosine(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _difference(value: float | None) -> str:
    if not value:
        return "none" if value is None else "0"
    return f"{value:.2e}" if math.isfinite(value) else str(value)


def _share(share: float) -> str:
    """A share; what is not 0 is never shown as 0."""
    return "0" if not share else format_percent(share) if share >= _SMALLEST_SHARE else "< 0.05 %"


def charts(record: AuditRecord) -> Mapping[str, Chart]:
    """The plots of the page."""
    found: dict[str, Chart] = {}
    if kinds := record.tables.get("kinds", ()):
        found["exponents"] = _exponents(kinds)
    for kind in dict.fromkeys(row["kind"] for row in record.tables.get("tensors", ())):
        rows = [row for row in record.tables["tensors"] if row["kind"] == kind and row["exponents"]]
        if rows:
            found[f"layers-{kind.replace(' ', '-')}"] = _by_layer(kind, rows)
    if updates := record.tables.get("updates", ()):
        found["updates"] = _frozen(updates)
    if scales := record.tables.get("loss_scales", ()):
        found["loss-scale"] = _scale_curve(scales)
    return found


def _exponents(kinds: Iterable[Mapping[str, Any]]) -> Chart:
    rows = [
        {"kind": row["kind"], "exponent": exponent, "share": number / row["elements"]}
        for row in kinds
        for exponent, number in row["exponents"]
    ]
    mark = {"type": "line", "interpolate": "step", "tooltip": True}
    encoding = {
        "x": _exponent_axis("exponent"),
        "y": {"field": "share", "type": "quantitative", "scale": {"type": "log"}, "title": "share of numbers"},
        "color": {"field": "kind", "type": "nominal", "sort": None, "title": None},
    }
    layers = [{"data": {"values": rows}, "mark": mark, "encoding": encoding}, *_limits()]
    return {**_chart("exponents by kind of tensor"), "height": 260, "layer": layers}


def _by_layer(kind: str, tensors: Iterable[Mapping[str, Any]]) -> Chart:
    rows = [
        {"place": row["place"], "exponent": exponent, "to": exponent + 1, "share": number / row["elements"]}
        for row in tensors
        for exponent, number in row["exponents"]
    ]
    encoding = {
        "x": _exponent_axis("exponent"),
        "x2": {"field": "to"},
        "y": {"field": "place", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260}},
        "color": {"field": "share", "type": "quantitative", "scale": {"type": "log", "scheme": "viridis"}},
    }
    height = max(60, min(1200, 12 * len({row["place"] for row in rows})))
    layers = [{"data": {"values": rows}, "mark": {"type": "rect", "tooltip": True}, "encoding": encoding}, *_limits()]
    return {**_chart(f"{kind} by layer"), "height": height, "layer": layers}


def _limits() -> list[Chart]:
    """Where FP16 begins and ends."""
    limits = [
        {"exponent": _FP16_SMALLEST, "limit": "FP16's smallest"},
        {"exponent": _FP16_LARGEST + 1, "limit": "FP16 ends"},
    ]
    x = {"field": "exponent", "type": "quantitative"}
    data = {"values": limits}
    rule = {"type": "rule", "strokeDash": [4, 4], "opacity": 0.7}
    text = {"type": "text", "align": "left", "baseline": "top", "dx": 3, "y": 2}
    return [
        {"data": data, "mark": rule, "encoding": {"x": x}},
        {"data": data, "mark": text, "encoding": {"x": x, "text": {"field": "limit"}}},
    ]


def _frozen(updates: Iterable[Mapping[str, Any]]) -> Chart:
    rows = [
        {"parameter": row["parameter"], "lost": row[f"frozen_share{ending}"], "stored": title}
        for row in updates
        for ending, title in (("", "as it is stored"), ("_bf16", "if BF16"), ("_fp16", "if FP16"))
    ]
    place = {"field": "parameter", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 260}}
    encoding = {
        "y": place,
        "x": {"field": "lost", "type": "quantitative", "title": "updates that change nothing", "axis": {"format": "%"}},
        "color": {"field": "stored", "type": "nominal", "sort": None, "title": None},
    }
    height = max(60, min(1200, 12 * len({row["parameter"] for row in rows})))
    mark = {"type": "point", "filled": True, "tooltip": True}
    chart = {**_chart("updates that are lost"), "height": height}
    return {**chart, "data": {"values": rows}, "mark": mark, "encoding": encoding}


def _scale_curve(scales: Iterable[Mapping[str, Any]]) -> Chart:
    rows = [
        {"exponent": row["exponent"], "share": row[f"{what}_share"], "what": title, "overflows": row["overflows"]}
        for row in scales
        for what, title in (("to_zero", "round to 0"), ("subnormal", "keep fewer digits"))
    ]
    symlog = {"type": "symlog", "constant": 1e-4}  # shares of very different sizes, and 0
    encoding = {
        "x": {"field": "exponent", "type": "quantitative", "title": "loss scale, power of two"},
        "y": {
            "field": "share",
            "type": "quantitative",
            "title": "gradients in FP16",
            "scale": symlog,
            "axis": {"format": ".2~%"},
        },
        "color": {"field": "what", "type": "nominal", "title": None},
        "shape": {"field": "overflows", "type": "nominal", "title": "largest overflows"},
    }
    mark = {"type": "point", "filled": True, "tooltip": True}
    return {**_chart("loss scales"), "height": 200, "data": {"values": rows}, "mark": mark, "encoding": encoding}


def _exponent_axis(field: str) -> Chart:
    return {"field": field, "type": "quantitative", "title": "exponent, power of two", "scale": {"zero": False}}


def _chart(title: str) -> Chart:
    return {"$schema": SCHEMA, "title": title, "width": "container"}
