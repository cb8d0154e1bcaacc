import math
from itertools import pairwise

import pytest

from torchledger.ledger import AuditRecord, Finding
from torchledger.view.audit_init import blocks, charts
from torchledger.view.audits import audit_page, audit_screen
from torchledger.view.screen import Bars, Table


def _levels(factor):
    return tuple(
        {"stack": "layers", "depth": depth, "place": f"layers.{depth}", "mean": 0.0, "std": factor**depth,
         "rms": factor**depth, "gradient_rms": None if depth == 0 else factor ** (4 - depth),
         "growth": None if depth == 0 else factor, "gradient_growth": factor if depth > 1 else None}
        for depth in range(5)
    )  # fmt: skip


def _matrix(place, **known):
    return {
        "place": place, "role": "layers.*.weight", "shape": [64, 64], "use": "matmul", "is_residual": False,
        "fan_in": 64, "fan_out": 64, "mean": 0.0, "std": 1.0, "std_error": 0.011, "scheme": "unscaled",
        "nearest": "unscaled", "expected_std": 1.0, "errors": 0.3, "fan_in_std": 0.125, "xavier_std": 0.125,
        "kaiming_std": 0.177, "gain": 8.0, "measured_gain": 7.9, "gradient_rms": 0.1, "zero_rows": 0,
        "constant_rows": 0, "copied_rows": 0, "copied_columns": 0, **known,
    }  # fmt: skip


@pytest.fixture
def record():
    finding = Finding("init", "warning", "layers", "the signal explodes", "--try fan_in", {"rate": 8.0})
    return AuditRecord(
        audit="init",
        subject="net",
        findings=(finding,),
        facts={"loss": 3.0, "tried": {"scheme": "fan_in", "loss": 2.0}},
        tables={
            "levels": _levels(8.0),
            "matrices": tuple(_matrix(f"layers.{i}.weight", errors=0.3 * i) for i in range(4)),
            "gates": ({"place": "layers.0", "kind": "relu", "share": 0.5, "count": 64},),
            "levels_after": _levels(1.0),
            "matrices_after": (_matrix("layers.0.weight", std=0.125, scheme="fan_in"),),
            "gates_after": (),
            "findings_after": ({**{k: getattr(finding, k) for k in ("audit", "place", "message", "remedy")},
                                "severity": "note", "evidence": {}},),
        },
    )  # fmt: skip


def test_depths_stand_beside_what_the_attempt_makes_of_them(record):
    """One row a level, its growth, and the same after the attempt."""
    table = next(block for block in blocks(record) if isinstance(block, Table))
    assert table.titles[-3:] == ("std after", "growth after", "gradient after")
    assert len(table.rows) == 5
    assert (table.rows[2].cells[4], table.rows[2].cells[8]) == ("8", "1")


def test_bars_are_logarithmic_and_left_out_where_nothing_grows(record):
    """Each of four steps of 8 is a quarter of the way; signals that stay alike need no bars."""
    (bars,) = [block for block in blocks(record) if isinstance(block, Bars)]
    steps = [bar.share for bar in bars.bars]
    assert [round(b - a, 3) for a, b in pairwise(steps)] == [0.245] * 4


def test_matrices_of_a_role_are_one_row_with_the_worst_error(record):
    """Four layers of one scheme are a row of n = 4, off by the worst of them."""
    table = next(block for block in blocks(record) if isinstance(block, Table) and block.title.startswith("weights, "))
    (row,) = table.rows
    assert (row.cells[0], row.cells[1], row.cells[6], row.cells[8]) == ("layers.*.weight", "4", "unscaled", "+0.9")


def test_charts_draw_before_and_after_on_logarithmic_axes(record):
    """Signals, gradients and spreads; a level without a gradient has no point."""
    drawn = charts(record)
    assert set(drawn) == {"signals", "gradients", "spreads", "spreads_after"}
    assert {row["of"] for row in drawn["signals"]["data"]["values"]} == {"as it is", "after fan_in"}
    assert drawn["signals"]["encoding"]["y"]["scale"] == {"type": "log"}
    assert len(drawn["gradients"]["data"]["values"]) == 8
    lines = drawn["spreads"]["layer"][0]["data"]["values"]
    assert {(row["fan_in"], row["rule"], round(row["std"], 6)) for row in lines} >= {
        (32.0, "1/sqrt(in)", round(1 / math.sqrt(32), 6)),
        (128, "sqrt(2/in)", round(math.sqrt(2 / 128), 6)),
    }


def test_what_is_not_finite_has_no_point_and_says_so(record):
    """A NaN is told in the table and is a gap in the chart; the page can be written all the same."""
    levels = ({**_levels(8.0)[0], "rms": math.nan, "std": math.nan}, *_levels(8.0)[1:])
    broken = AuditRecord("init", "net", tables={"levels": levels, "matrices": (), "gates": ()})
    table = next(block for block in blocks(broken) if isinstance(block, Table))
    assert table.rows[0].cells[3] == "not finite"
    assert len(charts(broken)["signals"]["data"]["values"]) == 4
    assert "not finite" in audit_page((broken,), "page")


def test_the_page_and_the_screen_hold_it_all(record):
    """What is found, before and after, is on both."""
    assert any("explodes" in cell for block in audit_screen(record) if isinstance(block, Table) for row in block.rows
               for cell in row.cells)  # fmt: skip
    assert "after fan_in" in audit_page((record,), "page")
