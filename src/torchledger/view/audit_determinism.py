"""How an audit of determinism is drawn: where each repeat parts, the data, what draws, what is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torchledger.ledger import AuditRecord
from torchledger.units import format_number, group_digits
from torchledger.view.chart import SCHEMA, Chart
from torchledger.view.screen import Block, Row, Table, table

_MODES = {"alternative": "takes another kernel", "refuses": "refuses it"}
_TRIALS = {
    "again": "asked for again, in another order",
    "rebuilt": "made anew from the seed",
    "after other draws": "after draws from every global stream",
    "another seed": "with another seed for every global stream",
    "workers": "without worker processes",
}
_MOST = 12


def blocks(record: AuditRecord) -> Iterator[Block]:
    """The tables of the record."""
    rows = tuple(_repeat(row) for row in record.tables.get("repeats", ()))
    if rows:
        yield Table(
            ("<run again", "<bit for bit", "first differs", "<operation", "<where", "elements", "largest", "loss"),
            rows, "repeated", optional=("loss", "largest", "elements"),
        )  # fmt: skip
    data = record.tables.get("data", ())
    if data:
        yield Table(
            ("<drawn", "<the same", "first other batch", "<first other weight", "<hangs on"),
            tuple(
                Row(
                    (
                        _TRIALS[row["trial"]],
                        _yes(row["same"]),
                        _number(row["first_batch"]),
                        row["parameter"],
                        ", ".join(row["streams"]),
                    ),
                    mark="good" if row["same"] else "bad",
                )
                for row in data
            ),
            f"data and first weights, {data[0]['num_batches']} batch{'es' if data[0]['num_batches'] > 1 else ''}",
        )
    yield from _random(record)
    known = record.tables.get("known", ())
    if known:
        yield table(
            ("<documented", "times", "<operation", "<first in", "<deterministic mode"),
            (
                (row["what"], group_digits(row["times"]), row["operation"], row["module"], _MODES[row["mode"]])
                for row in known
            ),
            title=f"known not to repeat on {known[0]['device']}",
        )


def charts(record: AuditRecord) -> Mapping[str, Chart]:
    """How many operations of each repeat were the same, up to the first that was not."""
    rows = [
        {
            "trial": row["trial"],
            "equal": row.get("number", row["num_operations"] if row["same"] else 0),
            "of": "all the same" if row["same"] else "then one differs",
        }
        for row in record.tables.get("repeats", ())
    ]
    if not rows:
        return {}
    return {
        "equal": {
            "$schema": SCHEMA,
            "title": "operations that were the same, bit for bit",
            "width": "container",
            "height": 26 * len(rows),
            "data": {"values": rows},
            "mark": {"type": "bar", "tooltip": True},
            "encoding": {
                "y": {"field": "trial", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 320}},
                "x": {"field": "equal", "type": "quantitative", "title": "operations"},
                "color": {
                    "field": "of", "type": "nominal", "title": None,
                    "scale": {"domain": ["all the same", "then one differs"], "range": ["#2ca02c", "#d62728"]},
                },
            },
        }
    }  # fmt: skip


def _repeat(row: Mapping[str, Any]) -> Row:
    """One run beside the first."""
    if row["same"]:
        return Row((row["trial"], "yes", "", "", "", "", "", ""), mark="good")
    where = " at ".join(part for part in (row.get("module", ""), row.get("source", "")) if part)
    elements = "" if row.get("num_elements") is None else f"{row['num_different']:,} of {row['num_elements']:,}"
    number = "" if row.get("number") is None else f"{row['number'] + 1:,} of {row['num_operations']:,}"
    return Row(
        (
            row["trial"], "no", number, row.get("operation", "").removeprefix("aten."), where, elements,
            _number(row.get("largest")), _number(row["loss_difference"]),
        ),
        mark="" if row["kind"] == "threads" else "bad",
    )  # fmt: skip


def _random(record: AuditRecord) -> Iterator[Block]:
    rows = record.tables.get("random", ())
    if not rows:
        return
    more = len(rows) - _MOST
    yield table(
        ("<draws random numbers", "<module", "<phase", "times"),
        ((row["operation"], row["module"], row["phase"], group_digits(row["times"])) for row in rows[:_MOST]),
        note=f"and {more} more" if more > 0 else "",
    )


def _number(value: float | None) -> str:
    return "" if value is None else format_number(value, 3)


def _yes(value: bool) -> str:
    return "yes" if value else "no"
