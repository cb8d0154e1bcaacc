"""How the audit of copies looks: bytes by kind as bars, the largest copies as a table, views counted."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchledger.ledger import AuditRecord
from torchledger.units import format_bytes, format_percent
from torchledger.view.chart import SCHEMA, Chart
from torchledger.view.screen import Bar, Bars, Block, Row, Table, table

_LARGEST = 15


def blocks(record: AuditRecord) -> Iterator[Block]:
    """Bytes by kind of copy, the largest copies, what kernels copy inside, views by operation."""
    by_kind = _known(record)
    if by_kind:
        longest = max(by_kind.values())
        bars = (Bar(kind, moved / (longest or 1), format_bytes(moved)) for kind, moved in by_kind.items())
        yield Bars(tuple(bars), "bytes moved by copies, by kind")
    rows = record.tables.get("copies", ())
    if rows:
        yield _largest(rows)
    kernels = record.tables.get("kernels", ())
    if kernels:
        yield table(
            ("<line", "<operation", "shape", "strides", "times", "copied"),
            (
                (
                    row["source"] or row["module"],
                    f"{row['op']} ({row['phase']})",
                    _sizes(row["shape"]),
                    _sizes(row["stride"]),
                    f"{row['times']:,}",
                    format_bytes(row["copied_bytes"]),
                )
                for row in kernels[:_LARGEST]
            ),
            title="operands that kernels copy before they begin",
        )
    views = record.tables.get("views", ())
    if views:
        shown = ((row["op"], f"{row['times']:,}") for row in views[:_LARGEST])
        yield table(("<operation", "times"), shown, title="operations that return views and copy nothing")


def _largest(rows: tuple[Mapping[str, Any], ...]) -> Table:
    shown = tuple(
        Row(
            (
                row["source"],
                row["module"],
                row["code"] or row["function"],
                row["kind"] if row["phase"] == "forward" else f"{row['kind']} ({row['phase']})",
                row["number_format"],
                _sizes(row["shape"]),
                f"{row['times']:,}",
                format_bytes(row["moved_bytes"]),
                format_percent(row["share"]),
                f"{row['judgement']}: {row['why']}" if row["why"] else row["judgement"],
            ),
            mark="bad" if row["judgement"] in {"avoidable", "unused"} else "",
        )
        for row in rows[:_LARGEST]
    )
    columns = ("<line", "<module", "<code", "<kind", "<format", "shape", "times", "moved", "share", "<needed")
    more = f"{len(rows) - _LARGEST:,} more in --json" if len(rows) > _LARGEST else ""
    return Table(columns, shown, "the largest copies", more, optional=("shape", "format", "code", "needed"))


def charts(record: AuditRecord) -> Mapping[str, Chart]:
    """Bytes moved by kind, and by line of source, colored by whether they are needed."""
    found: dict[str, Chart] = {}
    by_kind = _known(record)
    if by_kind:
        values = [{"kind": kind, "moved": moved / 2**20} for kind, moved in by_kind.items()]
        found["kinds"] = _bars("MiB moved by kind of copy", values, "kind", None)
    rows = [row for row in record.tables.get("copies", ()) if row["moved_bytes"]][:_LARGEST]
    if rows:
        values = [
            {
                "line": f"{row['source'] or row['module']} {row['function']} ({row['phase']})",
                "moved": row["moved_bytes"] / 2**20,
                "needed": row["judgement"],
                "code": row["code"],
            }
            for row in rows
        ]
        found["lines"] = _bars("MiB moved by line", values, "line", "needed")
    return found


def _bars(title: str, values: list[dict[str, Any]], label: str, color: str | None) -> Chart:
    encoding: Chart = {
        "y": {"field": label, "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 360}},
        "x": {"field": "moved", "type": "quantitative", "title": "MiB read and written"},
    }
    if color is not None:
        encoding["color"] = {"field": color, "type": "nominal", "title": None}
    return {
        "$schema": SCHEMA,
        "title": title,
        "width": "container",
        "height": 20 * len({value[label] for value in values}),
        "data": {"values": values},
        "mark": {"type": "bar", "tooltip": True},
        "encoding": encoding,
    }


def _known(record: AuditRecord) -> dict[str, int]:
    moved: Mapping[str, int | None] = record.facts.get("moved_bytes_by_kind", {})
    return {kind: amount for kind, amount in moved.items() if amount}


def _sizes(sizes: tuple[int, ...]) -> str:
    return " × ".join(f"{size:,}" for size in sizes) or "scalar"
