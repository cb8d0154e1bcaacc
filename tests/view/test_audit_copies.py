"""The audit of copies on a screen and a page."""

from torchledger.ledger import AuditRecord
from torchledger.view.audit_copies import blocks, charts
from torchledger.view.audits import audit_page, audit_screen
from torchledger.view.terminal import draw

ROW = {
    "source": "model.py:7",
    "code": "h.contiguous()",
    "module": "layers.*",
    "function": "contiguous",
    "op": "clone",
    "kind": "layout",
    "phase": "forward",
    "number_format": "fp32",
    "shape": (4, 1024),
    "times": 12,
    "copied_bytes": 2**20,
    "moved_bytes": 2**21,
    "share": 0.25,
    "judgement": "avoidable",
    "why": "gelu could read the original",
}
KERNEL = {"source": "model.py:9", "module": "norm", "op": "native_layer_norm", "phase": "forward", "shape": (4, 8)}


def record(**changes) -> AuditRecord:
    tables = {
        "copies": (ROW, {**ROW, "moved_bytes": None, "share": None, "phase": "backward", "judgement": "needed"}),
        "kernels": ({**KERNEL, "stride": (1, 4), "times": 1, "copied_bytes": 128},),
        "views": ({"op": "transpose", "times": 24},),
    }
    facts = {"moved_bytes": 2**21, "moved_bytes_by_kind": {"layout": 2**21, "gather": None}}
    return AuditRecord("copies", "net", facts=facts, tables=tables | changes)


def test_the_screen_names_line_bytes_and_verdict():
    """2 MiB moved, a quarter of the step, by the expression as it is written; what is unknown is said to be."""
    text = draw(audit_screen(record()))
    assert "h.contiguous()" in text
    assert "2 MiB" in text
    assert "25 %" in text
    assert "avoidable: gelu could read the original" in text
    assert "layout (backward)" in text
    assert "native_layer_norm (forward)" in text
    assert "transpose" in text


def test_charts_leave_unknown_bytes_out():
    """One bar for the kind and the line whose bytes are known."""
    drawn = charts(record())
    assert drawn["kinds"]["data"]["values"] == [{"kind": "layout", "moved": 2.0}]
    (bar,) = drawn["lines"]["data"]["values"]
    assert bar["line"] == "model.py:7 contiguous (forward)"
    assert bar["needed"] == "avoidable"


def test_a_step_without_copies():
    """Nothing is drawn, and the page stands."""
    empty = AuditRecord("copies", "net", facts={"moved_bytes": 0, "moved_bytes_by_kind": {}})
    assert not list(blocks(empty))
    assert not charts(empty)
    assert "nothing found" in audit_page((empty,), "copies of net")
