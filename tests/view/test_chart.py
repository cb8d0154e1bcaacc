import json
import math

import pytest

from torchledger.ledger import Ledger, Line, Work
from torchledger.view.chart import flops_by_part, loss_curve, memory_by_part, memory_curve, mfu_curve, throughput_curve


def values(chart):
    return chart["data"]["values"]


def test_training_and_validation_are_one_series_each(record):
    """A row with both losses gives a point to either curve."""
    rows = values(loss_curve([{"step": 3, "loss": 2.0, "validation_loss": 2.5}]))
    assert rows == [{"step": 3, "loss": 2.0, "of": "training"}, {"step": 3, "loss": 2.5, "of": "validation"}]


def test_a_loss_that_is_not_a_number_leaves_a_gap():
    """JSON has no NaN, so the point is null and the curve is interrupted."""
    assert values(loss_curve([{"step": 0, "loss": math.nan}]))[0]["loss"] is None


def test_levels_are_lines_across():
    """A named loss is a rule at its height with its name on it."""
    chart = loss_curve([], levels={"unigram entropy": 6.2})
    rule, name = chart["layer"][1:]
    assert rule["encoding"]["y"]["datum"] == 6.2
    assert name["mark"]["text"] == "unigram entropy"


def test_rows_without_the_quantity_are_left_out():
    """A metrics row without tokens/s is no point of that curve."""
    metrics = [{"step": 0, "tokens_per_s": 5.0, "mfu": 0.4}, {"step": 1, "loss": 2.0}]
    assert values(throughput_curve(metrics)) == [{"step": 0, "tokens_per_s": 5.0}]
    assert values(mfu_curve(metrics)) == [{"step": 0, "mfu": 0.4}]


@pytest.mark.parametrize(("scale", "unit"), [(2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")])
def test_memory_is_drawn_in_a_unit_that_fits(scale, unit):
    """The curve's points are bytes over the largest binary unit that the peak reaches; the peak is one marked point."""
    chart = memory_curve([(0, scale), (1, 2 * scale)], peak=(1, 2 * scale))
    area, point = chart["layer"]
    assert values(area) == [{"event": 0, "held": 1.0}, {"event": 1, "held": 2.0}]
    assert values(point) == [{"event": 1, "held": 2.0}]
    assert area["encoding"]["y"]["title"] == unit


def test_named_moments_are_lines_from_top_to_bottom():
    """`step 2` is a rule at its event with its name."""
    rule, name = memory_curve([(0, 1), (9, 1)], marks={"step 2": 5})["layer"][1:]
    assert rule["encoding"]["x"]["datum"] == name["encoding"]["x"]["datum"] == 5
    assert name["mark"]["text"] == "step 2"


def test_flops_by_part_sum_to_the_ledger(ledger):
    """Stacked bars hold every known FLOP, forward first."""
    rows = values(flops_by_part(ledger))
    assert sum(row["flops"] for row in rows) == ledger.flops
    assert next(row["phase"] for row in sorted(rows, key=lambda row: row["order"])) == "forward"


def test_unknown_flops_are_no_bar():
    """A part that does not know its FLOPs has no length to draw."""
    assert values(flops_by_part(Ledger((Line("a", "b", Work(flops_full=None), "unknown"),)))) == []


def test_empty_parts_are_no_bar():
    """A part without bytes is left out."""
    assert [row["part"] for row in values(memory_by_part({"parameters": 1, "inputs": 0}))] == ["parameters"]


def test_every_chart_is_json(record, ledger):
    """A chart is plain data that JSON can hold without NaN."""
    for chart in (loss_curve(record.metrics), memory_curve([(0, 1)]), flops_by_part(ledger), memory_by_part({"a": 1})):
        assert json.loads(json.dumps(chart, allow_nan=False)) == chart
        assert chart["$schema"].endswith("vega-lite/v6.json")
