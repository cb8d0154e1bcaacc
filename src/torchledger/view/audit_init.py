"""The init audit drawn: signals and gradients by depth, what each matrix was drawn by, gates, an attempt beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any, TypeAlias

from torchledger.ledger import AuditRecord, Finding
from torchledger.units import format_number, group_digits
from torchledger.view.chart import SCHEMA, Chart
from torchledger.view.screen import Bar, Bars, Block, Lines, Row, Table

Rows: TypeAlias = Sequence[Mapping[str, Any]]

_MOST_LEVELS = 32  # of a stack on a screen; the page draws all


def blocks(record: AuditRecord) -> Iterator[Block]:
    """Tables and bars for a terminal."""
    before, after = record.tables["levels"], record.tables.get("levels_after", ())
    for stack in dict.fromkeys(row["stack"] for row in before):
        own = [row for row in before if row["stack"] == stack]
        other = [row for row in after if row["stack"] == stack]
        yield _levels(stack, own, other if len(other) == len(own) else ())
        yield from _bars(stack, own, "as it is" if other else "")
        if other:
            yield from _bars(stack, other, f"after {_tried(record)}")
    yield from _matrices(record.tables["matrices"], "weights, by what they are for")
    yield from _gates(record.tables["gates"])
    if "findings_after" in record.tables:
        yield from _after(record)


def charts(record: AuditRecord) -> Mapping[str, Chart]:
    """Charts of the page: growth by depth before and after, and spread by fan-in."""
    levels = [{**row, "of": "as it is"} for row in record.tables["levels"]]
    levels += [{**row, "of": f"after {_tried(record)}"} for row in record.tables.get("levels_after", ())]
    made = {
        "signals": _by_depth(levels, "rms", "signal by depth (root mean square)"),
        "gradients": _by_depth(levels, "gradient_rms", "gradient by depth (root mean square)"),
        "spreads": _spreads(record.tables["matrices"], "standard deviation of each matrix by its fan-in"),
    }
    if "matrices_after" in record.tables:
        made["spreads_after"] = _spreads(
            record.tables["matrices_after"], f"standard deviation by fan-in, after {_tried(record)}"
        )
    return {name: chart for name, chart in made.items() if chart is not None}


def _tried(record: AuditRecord) -> str:
    found: str = record.facts.get("tried", {}).get("scheme", "the attempt")
    return found


def _levels(stack: str, before: Rows, after: Rows) -> Table:
    """Depth by depth; where there are too many, the first and the last ones."""
    kept = list(range(len(before)))
    if len(kept) > _MOST_LEVELS:
        kept = kept[: _MOST_LEVELS // 2] + kept[-_MOST_LEVELS // 2 :]
    names = ("mean", "std", "growth", "gradient_rms", "gradient_growth")
    columns = ["depth", "<place", "mean", "std", "growth", "gradient", "its growth"]
    if after:
        columns += ["std after", "growth after", "gradient after"]
    rows = []
    for index in kept:
        cells = [str(before[index]["depth"]), before[index]["place"], *(_text(before[index][name]) for name in names)]
        if after:
            cells += [_text(after[index][name]) for name in ("std", "growth", "gradient_rms")]
        rows.append(Row(tuple(cells)))
    left_out = len(before) - len(kept)
    note = f"{left_out} levels between them are left out; --json has all" if left_out else ""
    return Table(tuple(columns), tuple(rows), f"{stack}: signals forward, gradients on their way back", note, ("mean",))


def _bars(stack: str, rows: Rows, when: str) -> Iterator[Block]:
    """Signals on a logarithmic scale, a bar a level; none where they differ by less than a factor of three."""
    values = [(row["place"], row["rms"]) for row in rows if row["rms"] and math.isfinite(row["rms"])]
    if len(values) < 2 or len(values) > _MOST_LEVELS:
        return
    low, high = min(value for _, value in values), max(value for _, value in values)
    if high < 3 * low:
        return
    reach = math.log(high / low)
    bars = tuple(Bar(place, 0.02 + 0.98 * math.log(value / low) / reach, _text(value)) for place, value in values)
    yield Bars(bars, f"{stack}: size of the signal{', ' + when if when else ''}", "a logarithmic scale")


def _matrices(rows: Rows, title: str) -> Iterator[Block]:
    """One row for all matrices of a role that follow the same scheme."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["role"], tuple(row["shape"]), row["scheme"]), []).append(row)
    columns = ("<matrix", "n", "shape", "fan-in", "std", "±", "<drawn by", "it says", "off", "gain", "measured")
    lines = []
    for (role, shape, scheme), group in groups.items():
        errors = [row["errors"] for row in group if row["errors"] is not None and math.isfinite(row["errors"])]
        first = group[0]
        lines.append(Row((
            role, str(len(group)), "×".join(group_digits(size) for size in shape),
            "" if first["fan_in"] is None else group_digits(first["fan_in"]),
            _text(_mean(group, "std")), _text(_mean(group, "std_error")), _scheme(scheme, first),
            _text(first["expected_std"]), f"{max(errors, key=abs):+.1f}" if errors else "",
            _text(_mean(group, "gain")), _text(_mean(group, "measured_gain")),
        )))  # fmt: skip
    if lines:
        note = (
            "± is the sampling error of the standard deviation, off is in units of it (the worst of the n); "
            "gain is std·sqrt(fan-in), measured is what came out over what went in"
        )
        yield Table(columns, tuple(lines), title, note, ("it says", "shape", "±"))


def _scheme(scheme: str | None, row: Mapping[str, Any]) -> str:
    if scheme is not None:
        return scheme
    return "" if row["nearest"] is None else f"none; nearest {row['nearest']}"


def _mean(rows: Rows, name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None and math.isfinite(row[name])]
    return fmean(values) if values else None


def _gates(rows: Rows) -> Iterator[Block]:
    told = {
        "relu": "closed at every position",
        "tanh": "values within 0.01 of ±1",
        "sigmoid": "values within 0.01 of 0 or 1",
        "softmax": "mean of the largest probability",
    }
    lines = []
    for kind, what in told.items():
        own = [row for row in rows if row["kind"] == kind]
        if own:
            worst = max(own, key=lambda row: row["share"])
            mean = fmean(row["share"] for row in own)
            lines.append((kind, what, str(len(own)), f"{mean:.3f}", f"{worst['share']:.3f}", worst["place"] or "model"))
    if lines:
        columns = ("<gate", "<share of", "n", "mean", "worst", "<where")
        yield Table(columns, tuple(Row(line) for line in lines), "gates")


def _after(record: AuditRecord) -> Iterator[Block]:
    from torchledger.view.audits import findings_blocks  # which imports this module when it draws

    left = [Finding(**row) for row in record.tables["findings_after"]]
    serious = sum(each.severity != "note" for each in left)
    had = sum(each.severity != "note" for each in record.findings)
    yield Lines((f"after {_tried(record)}: {serious} of what was {had} errors and warnings",), mark="headline")
    yield from _matrices(record.tables["matrices_after"], f"weights after {_tried(record)}")
    for block in findings_blocks(left):
        assert isinstance(block, Table)
        yield Table(block.columns, block.rows, f"findings after {_tried(record)}")
    if record.findings:
        yield Lines(("what follows is about the model as it is",), mark="note")


def _by_depth(rows: Rows, name: str, title: str) -> Chart | None:
    values = [
        {"depth": row["depth"], "place": row["place"], "stack": row["stack"], "of": row["of"], "size": row[name]}
        for row in rows
        if row[name] and math.isfinite(row[name])
    ]
    if not values:
        return None
    encoding: Chart = {
        "x": {"field": "depth", "type": "quantitative", "title": "depth", "axis": {"tickMinStep": 1}},
        "y": {"field": "size", "type": "quantitative", "title": None, "scale": {"type": "log"}},
        "color": {"field": "of", "type": "nominal", "title": None, "sort": None},
    }
    if len({row["stack"] for row in values}) > 1:
        encoding["strokeDash"] = {"field": "stack", "type": "nominal", "title": None}
    mark = {"type": "line", "point": {"filled": True, "size": 30}, "tooltip": {"content": "data"}}
    return {**_chart(title), "data": {"values": values}, "mark": mark, "encoding": encoding}


def _spreads(rows: Rows, title: str) -> Chart | None:
    """Points, and the lines of the schemes that are functions of fan-in alone."""
    values = [
        {"place": row["place"], "fan_in": row["fan_in"], "std": row["std"], "scheme": row["scheme"] or "none of them"}
        for row in rows
        if row["fan_in"] and row["fan_in"] > 1 and row["std"]
    ]
    if not values:
        return None
    low, high = min(row["fan_in"] for row in values) / 2, max(row["fan_in"] for row in values) * 2
    lines = [
        {"fan_in": fan_in, "std": math.sqrt(scale / fan_in), "rule": rule}
        for rule, scale in (("1/sqrt(in)", 1), ("sqrt(2/in)", 2))
        for fan_in in (low, high)
    ]
    x: Chart = {"field": "fan_in", "type": "quantitative", "title": "fan-in", "scale": {"type": "log"}}
    y: Chart = {"field": "std", "type": "quantitative", "title": "standard deviation", "scale": {"type": "log"}}
    rule = {"strokeDash": {"field": "rule", "type": "nominal", "title": None}}
    drawn = {"color": {"field": "scheme", "type": "nominal", "title": "drawn by"}}
    return {
        **_chart(title),
        "layer": [
            {"data": {"values": lines}, "mark": {"type": "line", "opacity": 0.5}, "encoding": {"x": x, "y": y, **rule}},
            {
                "data": {"values": values},
                "mark": {"type": "point", "filled": True, "size": 50, "tooltip": {"content": "data"}},
                "encoding": {"x": x, "y": y, **drawn},
            },
        ],
    }


def _chart(title: str) -> Chart:
    return {"$schema": SCHEMA, "title": title, "width": "container", "height": 240}


def _text(value: float | None) -> str:
    if value is None:
        return ""
    return format_number(value, 3) if math.isfinite(value) else "not finite"
