import json
import math
from dataclasses import replace

import pytest

from torchledger.ledger import AuditRecord, Finding
from torchledger.view.audit_precision import blocks, charts
from torchledger.view.audits import audit_page, audit_screen
from torchledger.view.screen import Bars, Table
from torchledger.view.terminal import draw

SHARES = {
    f"{name}_{what}": 0.25 if (name, what) == ("fp16", "to_zero") else 0.0
    for name in ("bf16", "fp16", "fp8_e5m2", "fp8_e4m3")
    for what in ("to_zero", "subnormal", "overflow")
}
CENSUS = {
    "format": "FP32", "elements": 8, "zeros": 2, "infinities": 0, "nans": 1, "subnormals": 0, "largest": 1.5,
    "exponents": ((-30, 1), (-3, 3), (0, 1)),
}  # fmt: skip


@pytest.fixture
def record():
    check = {"loss": 2.5, "loss_difference": 0.0, "gradient_cosine": 0.9999, "gradient_difference": 0.01}
    return AuditRecord(
        "precision",
        "toy <model>",
        (Finding("precision", "warning", "a.weight", "25.0% of its weight gradients are 0 in FP16"),),
        {"loss": 2.5, "learning_rate": None},
        {
            "kinds": ({"kind": "weight gradient", "tensors": 1, **CENSUS, **SHARES, "worst_in_fp16": "a.weight"},),
            "tensors": ({"kind": "weight gradient", "place": "a.weight", **CENSUS, **SHARES},),
            "updates": (
                {"parameter": "a.weight", "stored": "BF16", "master": False, "wanted": 5, "frozen_share": 0.8,
                 "frozen_share_bf16": 0.8, "frozen_share_fp16": 0.0001, "ratio": None},
            ),
            "logits": (
                {"place": "attention", "largest": 70000.0, "before_scaling": 560000.0, "length": 16},
                {"place": "other", "largest": 3.0, "before_scaling": None, "length": 16},
            ),
            "softmaxes": (
                {"place": "attention", "operation": "softmax", "length": 16, "format": "BF16", "is_log": False,
                 "off": 0.004, "sum_bf16": 0.75, "sum_fp16": None},
            ),
            "loss_scales": (
                {"exponent": 4, "to_zero_share": 0.1, "subnormal_share": 0.5, "overflows": False},
                {"exponent": 5, "to_zero_share": 0.0, "subnormal_share": 0.4, "overflows": True},
            ),
            "kept": ({"place": "attention", "reason": "its attention logits reach 7e+04"},),
            "checks": (
                {"which": "as advised", "recipe": "autocast to BF16", **check, "update_cosine": None,
                 "update_difference": None, "holds": True},
                {"which": "as configured", "recipe": "autocast to FP16", **check, "loss_difference": math.nan,
                 "update_cosine": math.nan, "update_difference": math.nan, "holds": False},
            ),
        },
        {"plain_step_s": 0.1, "extra_bytes": 2**20},
    )  # fmt: skip


def shown(record):
    return {block.title: block for block in blocks(record)}


def test_every_table_of_a_record_is_drawn(record):
    """Each table of the audit has its block on the screen, and a record without tables has none."""
    assert list(shown(record)) == [
        "numbers of a step", "what each format loses", "updates that are lost", "largest attention logits", "softmaxes",
        "loss scales for FP16", "modules that stay in FP32", "steps against FP32",
    ]  # fmt: skip
    assert list(blocks(replace(record, tables={}))) == []


def test_a_histogram_is_one_column_for_each_power_of_two(record):
    """From 2^-30 to 2^0 are 31 columns, with something in the first, the fourth from the right and the last."""
    histogram = shown(record)["numbers of a step"].rows[0].cells[4]
    assert len(histogram) == 31
    assert [index for index, mark in enumerate(histogram) if mark != " "] == [0, 27, 30]
    assert histogram[27] > histogram[30] == histogram[0]


def test_infinite_numbers_and_scales_that_overflow_stand_out(record):
    """They are marked bad, and the best scale good."""
    assert shown(record)["numbers of a step"].rows[0].mark == "bad"
    assert [row.mark for row in shown(record)["loss scales for FP16"].rows] == ["good", "bad"]
    assert [row.mark for row in shown(record)["steps against FP32"].rows] == ["good", "bad"]


def test_a_share_that_is_not_0_is_not_shown_as_0(record):
    """0.0001 is less than 0.05 %, and is told so."""
    row = shown(record)["updates that are lost"].rows[0].cells
    assert row[2:] == ("80 %", "80 %", "< 0.05 %", "none")


def test_the_largest_logit_comes_first_with_what_it_was_before_scaling(record):
    """70,000 was 560,000 before it was scaled by 1/8; where the product was made by hand nothing is known of that."""
    bars = shown(record)["largest attention logits"]
    assert isinstance(bars, Bars)
    assert [bar.text for bar in bars.bars] == ["7e+04 (5.6e+05 before scaling)", "3"]
    assert bars.bars[0].share == 1.0


def test_unknown_is_not_drawn_as_0(record):
    """A cosine that is none, and a sum that was not added up, say so; a difference of nothing is 0."""
    first, second = shown(record)["steps against FP32"].rows
    assert (first.cells[2], first.cells[5]) == ("0", "none")
    assert (second.cells[2], second.cells[5]) == ("nan", "nan")
    assert shown(record)["softmaxes"].rows[0].cells[5:] == ("0.7500", "none")


def test_the_screen_and_the_page_hold_the_record(record):
    """Both are drawn whole, plain text has no markup, and the page stands alone with its data and escapes names."""
    text = draw(audit_screen(record))
    assert "precision of toy <model>: 1 warning" in text
    page = audit_page((record,), "precision of toy <model>")
    assert "toy &lt;model&gt;" in page
    assert "precision-exponents" in page
    assert "NaN" not in json.dumps(charts(record))


def test_charts_are_of_kinds_layers_updates_and_scales(record):
    """Each has data, and a layer's histogram has a cell for each exponent."""
    drawn = charts(record)
    assert list(drawn) == ["exponents", "layers-weight-gradient", "updates", "loss-scale"]
    assert len(drawn["layers-weight-gradient"]["layer"][0]["data"]["values"]) == len(CENSUS["exponents"])
    assert charts(replace(record, tables={})) == {}


def test_tables_have_a_cell_for_each_column(record):
    """Every block that is a table is well formed."""
    for block in blocks(record):
        if isinstance(block, Table):
            assert all(len(row.cells) == len(block.columns) for row in block.rows)
