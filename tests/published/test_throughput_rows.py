"""1,694 published measurements of training speed, each a question with its assumptions, or none for a told reason.

The rows are copies of tables of llm-foundry, Megatron-Bridge, NeMo, BigScience, MLPerf results (Apache-2.0), torchtitan
(BSD), vTrain and dgxc-benchmarking (MIT) and of papers; `source_link` says where each is printed. MLPerf's are derived
from logs and not verified by MLCommons.
"""

import csv
import io
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from torchledger.planner.baseline import flops_of
from torchledger.planner.measured import read_table
from torchledger.planner.measured_facts import read_facts
from torchledger.planner.stack import stacks

ROWS = Path(__file__).parent / "throughput"
FACTS = ROWS / "sources.toml"
SHARED = Path(__file__).parents[3] / "shared" / "data"
ALL = sorted(ROWS.glob("*.csv"))


@cache
def _readings():
    return tuple(read_table(path, FACTS) for path in ALL)


def _rows():
    return [row for reading in _readings() for row in reading.rows]


@cache
def _cells():
    return tuple(
        row for path in ALL for row in csv.DictReader(io.StringIO(path.read_text(encoding="utf-8"), newline=""))
    )


def test_every_row_is_a_question_or_says_why_not():
    """975 + 719 rows; those that are none name what they lack."""
    refused = [each for reading in _readings() for each in reading.refused]
    assert len(_rows()) + len(refused) == 975 + 719
    assert all(each.reasons for each in refused)


def test_how_many_of_each_kind():
    """So that a change of the reader that loses rows is seen."""
    counted = Counter((row.kind, row.standing) for row in _rows())
    assert counted["dense", "stated"] == 1075
    assert counted["dense", "recipe"] == 206
    assert counted["dense", "assumed"] == 43
    assert (counted["mixture", "recipe"], counted["mixture", "assumed"]) == (79, 70)


def test_vtrain_bloom_and_llm_foundry_are_stated_whole():
    """The sources that the planner's accuracy is promised on need no assumption of layout or recompute."""
    counted = Counter(row.family for row in _rows() if row.standing == "stated")
    assert {name: counted[name] for name in ("vTrain", "BLOOM", "llm-foundry")} == {
        "vTrain": 719 + 48,
        "BLOOM": 64 + 1,
        "llm-foundry": 216,
    }


def test_published_out_of_memory_rows_are_kept():
    """Three configurations of BLOOM did not fit."""
    assert sum(row.is_out_of_memory for row in _rows()) == 3


def test_no_row_beats_its_chip():
    """Model FLOPs over seconds stay below the peak; the one that does not is marked as a slip of its source (C)."""
    fast = [row for row in _rows() if row.step_s is not None and flops_of(row) / row.step_s > 0.9 * _peak(row)]
    assert [(row.source, row.quality) for row in fast] == [("llm.c scripts", "C")]


def _peak(row):
    return row.cluster.peak(row.recipe.precision.partition("-")[0])


def test_llm_foundrys_parameters_are_met_exactly():
    """The build that is assumed for MPT has every row's printed parameters, to the last one."""
    assert not [row for row in _rows() if row.source == "llm-foundry" if any("by its shape" in a for a in row.assumed)]


def test_every_fact_is_about_some_row_and_every_stack_is_known():
    """A fact that fits no row is a slip."""
    facts = read_facts(FACTS)
    idle = [
        (source, dict(fact.where), dict(fact.cells))
        for source, found in facts.by_source.items()
        for fact in found
        if not any(row["source_id"] == source and fact.meets(row) for row in _cells())
    ]
    assert idle == []
    named = {row.strategy.stack for row in _rows() if ".toml" not in row.strategy.stack}
    assert named <= set(stacks())


def test_every_source_has_a_family():
    """So that a source is never left out without its neighbours on the same cluster."""
    assert {
        source for source in {row["source_id"] for row in _cells()} if source not in read_facts(FACTS).families
    } <= {
        "OPT-175B",
        "GLM-130B",
        "DeepSeek-V3 README",
    }


@pytest.mark.skipif(not SHARED.is_dir(), reason="the collection is not in a public clone")
def test_the_copies_say_what_the_collection_says():
    """Cell by cell, but for the columns that nothing reads."""
    kept = {}
    for row in _cells():
        kept.setdefault(row["source_id"], []).append(row)
    for name in ("measured_throughput.csv", "measured_vtrain_single_node.csv"):
        with (SHARED / name).open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                copy = kept[row["source_id"]].pop(0)
                assert all(copy[column] == row[column] for column in copy)
    assert not any(kept.values())
