"""The page of predicted and measured seconds says what the rows and the planner say."""

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from torchledger.planner.measured import read_rows, read_table
from torchledger.planner.measured_cells import COLUMNS

DOCS = Path(__file__).parents[2] / "docs"
THROUGHPUT = DOCS.parent / "tests" / "published" / "throughput"


def generator():
    spec = importlib.util.spec_from_file_location("generate_time_validation", DOCS / "generate_time_validation.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made():
    module = generator()
    return module, module.readings()


@pytest.fixture(scope="module")
def truth(made):
    """The page of a planner that knows every answer."""
    module, readings = made
    return module.page(readings, lambda row: row.step_s, exact, known)


def tables(made, planner):
    """The tables by source alone."""
    module, readings = made
    rows = module.trusted([row for reading in readings for row in reading.rows])
    return "\n".join(("", *module.tables(rows, planner)))


def lines_of(text, part, start):
    """The lines of a table that begin so, by the heading under which it stands."""
    section = text.split(f"\n## {part}", 1)[1].split("\n## ", 1)[0]
    return [line for line in section.splitlines() if line.startswith(start)]


def exact(row):
    """Memory as it was measured; what did not fit takes twice a chip's."""
    capacity = row.cluster.chip.memory_bytes_nominal
    return (2 * capacity if row.is_out_of_memory else row.peak_bytes), capacity


def known(row):
    """The measured seconds where a calibration finds a matmul share of 0.5; half of them at 1."""
    return lambda constants: row.step_s * 0.5 / constants.matmul_share


def test_a_planner_that_knows_the_answer_has_no_error(truth):
    """Predicting the measured seconds gives 0.0 % in every table, and the baselines keep their errors."""
    lines = lines_of(truth, "Dense models, layout", "| vTrain")
    assert lines
    assert all(line.split(" | ")[2:6] == ["0.0%", "0.0%", "0.0%", "+0.0%"] for line in lines)
    assert all(line.split(" | ")[7] != "0.0%" for line in lines)


def test_a_planner_that_is_a_tenth_too_fast_has_that_bias(made):
    """0.9 of the measured seconds: mean and median 10 %, bias -10 %."""
    text = tables(made, lambda row: 0.9 * row.step_s)
    (line,) = lines_of(text, "Dense models, layout", "| llm-foundry")
    assert line.split(" | ")[1:6] == ["216", "10.0%", "10.0%", "10.0%", "-10.0%"]


def test_what_the_planner_refuses_is_counted(made):
    """A refused layout is no error of zero: 48 rows, of which those with tensor parallelism over nodes are left out."""
    text = tables(made, lambda row: None if row.strategy.tensor_parallel > 8 else row.step_s)
    (line,) = lines_of(text, "Dense models, layout", "| vTrain ground truth (multi-node)")
    assert line.split(" | ")[1] == "44 of 48"


def test_memory_that_does_not_fit_is_counted(truth):
    """BLOOM: three rows did not fit and are refused; the peaks that were measured have no error."""
    (line,) = lines_of(truth, "Memory", "| BigScience")
    assert line.split(" | ")[2:4] == ["0.0%", "0.0%"]
    assert line.split(" | ")[7:] == ["3", "3 |"]


def test_calibration_is_tried_on_rows_that_it_did_not_see(truth):
    """One constant explains everything: five rows bring the error of the others far down, inside the interval."""
    (line,) = lines_of(truth, "With five rows", "| vTrain ground truth (multi-node)")
    cells = (cell.strip(" |") for cell in line.split(" | "))
    _, _, _, rows, before, drawn, inside, suggested, within, share, others = cells
    assert rows == "48"
    assert float(others.rstrip("%")) < float(before.rstrip("%")) / 5
    assert float(drawn.rstrip("%")) < float(before.rstrip("%")) / 5
    assert float(suggested.rstrip("%")) < float(before.rstrip("%")) / 5
    assert float(share) < 1 / 5
    assert inside == within == "100%"


def test_calibration_is_tried_on_rows_that_nothing_was_chosen_on(truth):
    """The 61 other rows of vTrain's file: five of the 48 known ones bring their error down as they do at home."""
    (line,) = lines_of(truth, "Rows that nothing", "| vTrain")
    _, rows, before, after, inside, share = (cell.strip(" |") for cell in line.split(" | "))
    assert rows == "61"
    assert float(after.rstrip("%")) < float(before.rstrip("%")) / 5
    assert float(share) < 1 / 5
    assert inside == "100%"


def test_what_no_constants_leave_adds_up(made):
    """Two of three like rows as predicted and one twice as slow: 17 % of 17 %, all of it in the slow one."""
    _, readings = made
    row = next(row for reading in readings for row in reading.rows if "multi-node" in row.source)
    slow = replace(row, step_s=2 * row.step_s)
    told = sys.modules["calibrated_steps"].left_by_any_constants(
        [row, row, slow], lambda _: lambda constants: constants.overhead * row.step_s
    )
    assert "these 3 rows themselves, leave at least 16.7% of the 16.7% by default" in told
    assert "predict 2 rows to 0.0%; 1 are predicted more than 8% too fast and 0 too slow. 100% of what is left" in told


def test_groups_that_five_rows_bring_to_half_need_no_excuse(truth):
    """A planner with one wrong constant is right after five rows: the table has a head alone."""
    assert len(lines_of(truth, "Where five rows do not", "|")) == 2


def test_what_could_have_been_left_is_told_of_groups_that_five_rows_do_not_help(made):
    """NeMo's 10 rows take 8 and 12 s by turns, where 10 s are predicted: off by 1/4 and 1/6, by 5/24 on average.

    No constants tell the rows from each other. All at 8 s is the least, with 0 and 1/3, by 1/6 on average: 4/5 of it.
    """
    module, readings = made
    rows = module.trusted([row for reading in readings for row in reading.rows])
    dense = [row for row in rows if row.source.startswith("NeMo 24") and row.kind == "dense"]
    doubled = {row.place: replace(row, step_s=8.0 + i % 2 * 4.0) for i, row in enumerate(dense)}
    head, rule, line = module.hindsight(list(doubled.values()), lambda _: lambda constants: constants.overhead * 10.0)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[1:2] + cells[3:4] == ["fp8", "0.800 of 10"]
    assert cells[5] == "252"
    assert cells[7] == "0"
    assert head.count("|") == rule.count("|") == line.count("|")


def test_unseen_rows_are_in_no_table_that_anything_is_fitted_to(made):
    """None of the 61 is one of the 48."""
    _, readings = made
    known_rows = {(row.spec.hidden_size, row.strategy, row.step_s) for reading in readings for row in reading.rows}
    fresh = read_table(THROUGHPUT / "unseen" / "vtrain_multi.csv", THROUGHPUT / "sources.toml").rows
    assert len(fresh) == 61
    assert not known_rows & {(row.spec.hidden_size, row.strategy, row.step_s) for row in fresh}


def test_every_row_is_in_one_table_or_told_why_not(made):
    """The tables' row counts add up to the trusted rows."""
    module, readings = made
    rows = module.trusted([row for reading in readings for row in reading.rows])
    chosen = [row for _, _, belongs in module.PARTS for row in rows if belongs(row)]
    assert len(chosen) == len(rows)


@pytest.mark.proof
def test_the_page_is_current(made):
    """docs/validation-time.md is what `make validation` would write now."""
    module, readings = made
    page = module.page(readings, module.estimated, module.held, module.under)
    assert module.TARGET.read_text(encoding="utf-8") == page, "run `make validation`"


def test_the_page_of_rows_lists_every_column():
    """A user's table has the columns that the reader knows, each with what it holds."""
    text = (DOCS / "measured-rows.md").read_text(encoding="utf-8")
    assert [column for column, told in COLUMNS.items() if f"| `{column}` | {told} |" not in text] == []


def test_the_example_table_of_the_page_is_read(tmp_path):
    """What the page shows as a table of one's own is one."""
    text = (DOCS / "measured-rows.md").read_text(encoding="utf-8")
    path = tmp_path / "mine.csv"
    path.write_text(text.split("```csv\n", 1)[1].split("```", 1)[0], encoding="utf-8")
    assert [(row.strategy.data_parallel, row.strategy.shard_level) for row in read_rows(path)] == [(8, 1), (16, 3)]
