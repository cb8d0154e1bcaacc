"""Published memory of training runs, predicted from the configuration alone: 93 rows, each predicted or left out.

`measured/rows.csv` holds every row with what was measured, its metric and unit, and what is predicted;
`measured/runs.py` says how a row's run is built. `target` rows are eager, unquantised, of fixed length and complete;
`reported` rows are compiled or quantised and predicted as if they were not; rows that cannot be rebuilt are `left out`,
with the reason.
"""

import csv
import importlib.util
import statistics
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "measured"
ROWS = list(csv.DictReader((HERE / "rows.csv").read_text(encoding="utf-8").splitlines()))
UNITS = {"GiB": 2**30, "MiB": 2**20, "GB": 10**9}
PREDICTED = [row for row in ROWS if row["standing"] != "left out"]


def load_runs():
    spec = importlib.util.spec_from_file_location("measured_runs", HERE / "runs.py")
    module = sys.modules["measured_runs"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def error(row):
    """Relative error of the prediction that stands in the table."""
    return float(row["predicted"]) / float(row["value"]) - 1


def test_every_row_is_predicted_or_says_why_not():
    """All 93 rows; a row that is left out or has no target says why, one that is predicted has a run."""
    runs = load_runs().RUNS
    assert len(ROWS) == 93
    assert {row["row"] for row in PREDICTED} == set(runs)
    assert all(bool(row["reason"]) == (row["standing"] != "target") for row in ROWS)
    assert all(bool(row["predicted"]) == (row["standing"] != "left out") for row in ROWS)


def test_the_errors_of_the_rows_with_a_target():
    """Median error at most 3 %, 90th percentile under 8 %."""
    errors = sorted(abs(error(row)) for row in ROWS if row["standing"] == "target")
    assert statistics.median(errors) <= 0.03
    assert errors[int(0.9 * len(errors))] < 0.08


def test_one_row_is_predicted_anew():
    """StableLM Alpha 3B with LoRA: 9.69 GB measured, and predicted."""
    row = next(row for row in PREDICTED if row["row"] == "M139")
    assert predicted(row) == row["predicted"]


@pytest.mark.proof
@pytest.mark.parametrize("row", PREDICTED, ids=lambda row: row["row"])
def test_the_table_holds_what_the_tracer_predicts(row):
    """Each figure of the table, to its last digit."""
    assert predicted(row) == row["predicted"]


def predicted(row):
    """What the tracer predicts now, to as many digits as stand in the table."""
    found = load_runs().RUNS[row["row"]].predict(row["metric"]) / UNITS[row["unit"]]
    digits = len(row["predicted"].partition(".")[2])
    return f"{found:.{digits}f}"
