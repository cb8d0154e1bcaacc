"""What a source says outside of its table fills the cells that are empty, and is told."""

import pytest

from torchledger.planner.errors import PlanError
from torchledger.planner.measured import read_table
from torchledger.planner.measured_facts import read_facts

TABLE = """model,source_id,gpu,n_gpus,precision,seq,micro_batch,global_batch,recompute,step_time_s
gpt2,there,a100,8,bf16,1024,4,64,unstated,0.5
gpt2-xl,there,a100,8,bf16,1024,4,64,full,2.5
"""

FACTS = """
[source."there"]
family = "those"
[[source."there".fact]]
kind = "stated"
set = { stack = "fsdp2" }
because = "its name"
[[source."there".fact]]
kind = "recipe"
where = { model = "gpt2" }
set = { recompute = "selective" }
because = "train.py"
[[source."there".fact]]
kind = "corrected"
where = { model = ["gpt2-xl"] }
set = { micro_batch = 2, overlap_data = false }
because = "a slip of the pen"
"""


def _read(folder, facts=FACTS):
    (folder / "rows.csv").write_text(TABLE, encoding="utf-8")
    (folder / "facts.toml").write_text(facts, encoding="utf-8")
    return read_table(folder / "rows.csv", folder / "facts.toml")


def test_empty_cells_are_filled_and_full_ones_only_when_corrected(tmp_path):
    """`recompute` of the second row stays full; its micro-batch is replaced."""
    first, second = _read(tmp_path).rows
    assert (first.recipe.recompute, second.recipe.recompute) == ("selective", "full")
    assert (first.strategy.micro_batch_size, second.strategy.micro_batch_size) == (4, 2)
    assert (first.strategy.overlap_data, second.strategy.overlap_data) == (True, False)


def test_what_was_filled_is_told_with_its_reason(tmp_path):
    """Stated facts are no assumptions; recipes and corrections are told."""
    first, second = _read(tmp_path).rows
    assert first.by_recipe == ("recompute",)
    assert "recompute: selective, train.py" in first.assumed
    assert not any(each.startswith("stack") for each in first.assumed)
    assert "micro_batch: 2, a slip of the pen" in second.assumed


def test_a_source_has_a_family(tmp_path):
    """Sources of one family are left out together."""
    assert {row.family for row in _read(tmp_path).rows} == {"those"}


def test_every_mistake_of_a_facts_file_is_told_at_once(tmp_path):
    """An unknown column, an unknown kind and a missing reason."""
    wrong = '[[source.a.fact]]\nkind = "guessed"\nset = { recomputed = "full" }\n'
    (tmp_path / "facts.toml").write_text(wrong, encoding="utf-8")
    with pytest.raises(PlanError) as caught:
        read_facts(tmp_path / "facts.toml")
    assert [words in str(caught.value) for words in ("'recomputed'", "'guessed'", "because")] == [True] * 3
