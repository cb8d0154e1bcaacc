"""Audits as screens and pages."""

import json
import re

from torchledger.ledger import AuditRecord, Finding
from torchledger.view.audits import DATA_ID, audit_page, audit_screen, verdict
from torchledger.view.terminal import draw

RECORD = AuditRecord(
    "copies",
    "my model",
    findings=(
        Finding("copies", "warning", "model.py:7", "copies 2 MiB", "leave it out"),
        Finding("copies", "note", "model.py:9", "casts once more"),
        Finding("copies", "note", "model.py:11", "casts <again>"),
    ),
    facts={"step_bytes": 2**20, "copied_bytes": 0},
    tables={"copies": (), "views": (), "kernels": ()},
    overhead={"audit_s": 1.5},
    assumptions=("a step of one batch",),
)


def test_the_verdict_counts_findings_by_severity():
    """Each severity that there is, worst first; nothing is told to be nothing."""
    assert verdict(RECORD) == "1 warning, 2 notes"
    assert verdict(AuditRecord("init", "m")) == "nothing found"


def test_a_record_is_clean_where_nothing_is_above_a_note():
    """Notes do not count."""
    assert not RECORD.is_clean
    assert AuditRecord("copies", "m", findings=RECORD.findings[1:]).is_clean


def test_a_screen_has_the_verdict_every_finding_the_cost_and_the_assumptions():
    """First the answer in one line, then what it stands on."""
    text = draw(audit_screen(RECORD))
    assert text.startswith("copies of my model: 1 warning, 2 notes\n")
    for told in ("model.py:7", "copies 2 MiB", "leave it out", "1.5 s", "a step of one batch"):
        assert told in text


def test_a_page_stands_alone_and_has_its_data_inside():
    """Texts are escaped, nothing is fetched, and the records can be read back."""
    page = audit_page((RECORD,), "copies of my model")
    assert "<again>" not in page.partition("<script")[0]
    assert not re.search(r'(src|href)="https?:', page)
    data = re.search(rf'id="{DATA_ID}">(.*?)</script>', page, re.DOTALL)
    assert data is not None
    (told,) = json.loads(data[1])
    assert told["facts"] == {"step_bytes": 2**20, "copied_bytes": 0}
    assert [each["severity"] for each in told["findings"]] == ["warning", "note", "note"]
