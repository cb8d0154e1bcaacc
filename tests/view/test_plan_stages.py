from dataclasses import replace

from torchledger.planner.stage import Stage
from torchledger.view.plan_stages import holds, stage_table


def test_neighbours_that_print_alike_are_one_row(plan):
    """Stages 1 and 2 hold three layers each and wait equally long."""
    assert [row.cells[0] for row in stage_table(plan).rows] == ["0", "1-2", "3"]


def test_the_fullest_and_the_one_that_waits_least_are_told(plan):
    """Stage 0 has the embedding's parameters; all wait equally long, and the first of them is named."""
    assert [row.cells[-1] for row in stage_table(plan).rows] == ["fullest, waits least", "", ""]


def test_busy_and_bubble_add_up_to_the_step(plan):
    """8 · 0.3 s + 0.05 s busy and 3 · 0.3 s of bubble are 3.35 s."""
    assert all(row.cells[4:6] == ("2.45 s", "900 ms, 26.9 %") for row in stage_table(plan).rows)


def test_a_stage_beyond_the_memory_is_marked(plan):
    """Stage 0 holds 8.5 GiB, the others 7.5: of 8 GiB only the first is over."""
    rows = stage_table(replace(plan, capacity_bytes=8 * 2**30)).rows
    assert [row.mark for row in rows] == ["bad", "", ""]


def test_what_a_stage_holds(plan):
    """Embedding, layers of all chunks together, head."""
    first, *_, last = [each.stage for each in plan.stages]
    assert holds(first) == "embedding, 3 layers"
    assert holds(last) == "3 layers, head"
    assert holds(Stage(1, (first.chunks[0], last.chunks[0]), (1, 1))) == "embedding, 6 layers, head in 2 chunks"


def test_a_long_pipeline_is_cut_to_its_ends(plan):
    """Of 64 unlike stages the table shows the ends and those with a remark, and says how many are left out."""
    stages = tuple(
        replace(
            plan.stages[1],
            stage=replace(plan.stages[1].stage, index=index),
            memory=replace(plan.stages[1].memory, parts={"parameters": (100 - abs(index - 30)) * 2**30}),
        )
        for index in range(64)
    )
    table = stage_table(replace(plan, stages=stages))
    assert "30" in [row.cells[0] for row in table.rows]
    assert len(table.rows) + int(table.note.split()[0]) == 64
