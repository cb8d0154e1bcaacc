"""One HTML file of a run: nothing fetched, light and dark, its data inside, so that `compare` can read it back."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from torchledger.ledger import RunRecord, beyond
from torchledger.view.amount import named_pairs
from torchledger.view.chart import (
    Chart,
    flops_by_part,
    loss_curve,
    memory_by_part,
    memory_curve,
    mfu_curve,
    throughput_curve,
)
from torchledger.view.closing import closing_table
from torchledger.view.document import chart_section, document, folded, section
from torchledger.view.memory import memory_bars
from torchledger.view.record import RecordFormatError, record_from_json, record_to_json
from torchledger.view.screen import Facts, Lines, Row, Screen, Table, assumed
from torchledger.view.table import ledger_table

_DATA_ID = "torchledger-run"


def page(record: RunRecord) -> str:
    """The report of a run as one HTML document."""
    charts = _charts(record)
    body = "\n".join(_sections(record, charts))
    return document(record.name, body, charts, data_id=_DATA_ID, data_json=record_to_json(record))


def read_page(text: str) -> RunRecord:
    """The record inside a report that `page` wrote.

    Raises:
        RecordFormatError: the text is not such a report, or one of another schema.
    """
    found = re.search(rf'<script type="application/json" id="{_DATA_ID}">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise RecordFormatError("not a torchledger report: no run is embedded in it")
    return record_from_json(found[1])


def _sections(record: RunRecord, charts: Mapping[str, Chart]) -> Iterator[str]:
    yield f"<h1>{escape(record.name)}</h1>"
    if record.differences:
        over, held = len(beyond(record.differences)), sum(each.within is not None for each in record.differences)
        verdict = f"{over} of {held} beyond tolerance" if over else f"all {held} within tolerance"
        yield section(f"The books: {verdict}", (closing_table(record.differences),))
    if charts:
        yield chart_section("Curves", charts)
    if record.findings:
        yield section("Noticed", (_findings(record),))
    if record.prediction:
        told = Facts(tuple(named_pairs(record.prediction)))
        yield section("Predicted before the run", (told, *assumed(record.prediction.get("assumptions", ()))))
    if record.memory:
        yield section("Memory", _memory(record.memory))
    if record.ledger is not None:
        tables = (
            ledger_table(record.ledger, "phase", title="by phase"),
            ledger_table(record.ledger, "kind", title="by kind"),
            ledger_table(record.ledger, "module", title="by module"),
            *((Lines(record.ledger.assumptions, "assumes", "note"),) if record.ledger.assumptions else ()),
        )
        yield section("One step, line by line", tables)
    if record.samples:
        yield section("Written by the model", tuple(Lines((sample,), mark="code") for sample in record.samples))
    yield folded("Configuration", (Facts(tuple(named_pairs(record.config))),))
    yield folded("Environment", (Facts(tuple(named_pairs(record.environment))),))


def _findings(record: RunRecord) -> Table:
    rows = (
        Row((f.severity, f.audit, f.place, f.message, f.remedy), mark="bad" if f.severity == "error" else "")
        for f in record.findings
    )
    return Table(("<severity", "<audit", "<place", "<what", "<what to do"), tuple(rows))


def _memory(memory: Mapping[str, Any]) -> Screen:
    rest = {name: value for name, value in memory.items() if name != "parts_bytes"}
    parts = memory.get("parts_bytes")
    bars = (memory_bars(parts, title="at the peak"),) if parts else ()
    return (*bars, Facts(tuple(named_pairs(rest))))


def _charts(record: RunRecord) -> dict[str, Chart]:
    """The charts that the record has data for, by the id of their place."""
    charts: dict[str, Chart] = {}
    if any(row.get("loss") is not None for row in record.metrics):
        charts["chart-loss"] = loss_curve(record.metrics, levels=_levels(record))
    if any(row.get("tokens_per_s") is not None for row in record.metrics):
        charts["chart-throughput"] = throughput_curve(record.metrics)
    if any(row.get("mfu") is not None for row in record.metrics):
        charts["chart-mfu"] = mfu_curve(record.metrics)
    if outline := record.memory.get("outline"):
        charts["chart-memory"] = memory_curve(
            outline, peak=max(outline, key=lambda point: point[1]), marks=record.memory.get("marks")
        )
    if parts := record.memory.get("parts_bytes"):
        charts["chart-parts"] = memory_by_part(parts)
    if record.ledger is not None:
        charts["chart-flops"] = flops_by_part(record.ledger)
    return charts


def _levels(record: RunRecord) -> dict[str, float]:
    """Losses worth a line across the chart, where the prediction has them."""
    names = {"unigram_entropy": "unigram entropy of the data", "initial_loss": "ln(vocabulary)"}
    found = {name: record.prediction.get(key) for key, name in names.items()}
    return {name: value for name, value in found.items() if isinstance(value, (int, float))}
