"""What audits found: a screen of one, a page of several. Each kind draws its own tables in `audit_<kind>.py`."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from html import escape
from typing import Any

from torchledger.ledger import AuditRecord, Finding
from torchledger.view.amount import named_pairs
from torchledger.view.chart import Chart
from torchledger.view.document import chart_section, document, section
from torchledger.view.record import plain
from torchledger.view.screen import Block, Facts, Lines, Row, Screen, Table, assumed

DATA_ID = "torchledger-audits"


def audit_screen(record: AuditRecord) -> Screen:
    """An audit for a terminal: the verdict, its figures, its tables, the findings, what looking cost."""
    return (
        Lines((f"{record.audit} of {record.subject}: {verdict(record)}",), mark="headline"),
        *((Facts(tuple(named_pairs(record.facts))),) if record.facts else ()),
        *_kind(record).blocks(record),
        *findings_blocks(record.findings),
        *_overhead(record),
        *assumed(record.assumptions),
    )


def audit_page(records: Iterable[AuditRecord], title: str) -> str:
    """Audits as one HTML document that stands alone, its data inside."""
    records = tuple(records)
    charts: dict[str, Chart] = {}
    parts = [f"<h1>{escape(title)}</h1>"]
    for record in records:
        own = {f"{record.audit}-{name}": chart for name, chart in charts_of(record).items()}
        charts.update(own)
        parts.append(section(f"{record.audit}: {verdict(record)}", audit_screen(record)[1:]))
        if own:
            parts.append(chart_section(f"{record.audit}, drawn", own))
    data = json.dumps(plain([asdict(record) for record in records]), allow_nan=False, default=str)
    return document(title, "\n".join(parts), charts, data_id=DATA_ID, data_json=data)


def charts_of(record: AuditRecord) -> Mapping[str, Chart]:
    """An audit's charts by name; none where it has nothing to draw."""
    found: Mapping[str, Chart] = _kind(record).charts(record)
    return found


def verdict(record: AuditRecord) -> str:
    """How many findings of each severity, in words."""
    counts = {
        severity: sum(each.severity == severity for each in record.findings)
        for severity in ("error", "warning", "note")
    }
    told = [f"{count} {name}{'s' if count > 1 else ''}" for name, count in counts.items() if count]
    return ", ".join(told) or "nothing found"


def findings_blocks(findings: Iterable[Finding]) -> Iterator[Block]:
    """Findings as a table, where there are any."""
    marks = {"error": "bad", "warning": "bad"}
    rows = tuple(
        Row((f.severity, f.place, f.message, f.remedy), mark=marks.get(f.severity, ""))  # type: ignore[arg-type]  # values of a dict
        for f in findings
    )
    if rows:
        yield Table(("<severity", "<place", "<what", "<what to do"), rows, "findings")


def _overhead(record: AuditRecord) -> Iterator[Block]:
    if record.overhead:
        yield Facts(tuple(named_pairs(record.overhead)), "what looking cost")


def _kind(record: AuditRecord) -> Any:
    """The module that draws this kind of audit: it has `blocks(record)` and `charts(record)`."""
    return importlib.import_module(f"torchledger.view.audit_{record.audit}")
