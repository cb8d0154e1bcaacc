import pytest

from torchledger.planner.outcome import Estimate
from torchledger.planner.search import Found, Offer
from torchledger.planner.search_kept import Candidate, Loss
from torchledger.spec import Recipe, Strategy
from torchledger.view.plan_found import found_to_dict
from torchledger.view.plan_search import search_screen, strategy_text
from torchledger.view.terminal import draw


def candidate(step_s, peak_gib, loses_by="", **strategy):
    layout, estimate = Strategy(micro_batch_size=1, **strategy), Estimate(step_s, int(peak_gib * 2**30))
    return Candidate(layout, Recipe(), estimate, "pipeline bubble", loses_by)


@pytest.fixture
def found():
    """Three layouts that fit, two of them on the front, and a million that lost."""
    fast, middle, small = (
        candidate(10.0, 70, data_parallel=8),
        candidate(11.0, 71, "tensor parallel communication", tensor_parallel=8),
        candidate(12.0, 20, "pipeline bubble", pipeline_parallel=8),
    )
    losses = (
        Loss("memory", "weights, gradients and optimizer state alone", 900_000, 3.0 * 2**30),
        Loss("shape", "40 heads over tp 16", 99_997, None),
        Loss("time", "pipeline bubble", 3, None),
    )
    return Found(
        best=(fast, middle, small),
        pareto_memory=(fast, small),
        pareto_money=(Offer(8, fast, 100.0, 19_200.0, 53_760.0),),
        nearest=(),
        capacity_bytes=79 * 2**30,
        num_points=1_000_003,
        num_considered=1_000_003,
        num_evaluated=6,
        axes=(("tensor parallel", "1, 2, 4, 8"),),
        losses=losses,
    )


def test_the_points_are_counted_on_the_first_line(found):
    """How many there are, how many were considered, how long it took."""
    first = draw(search_screen(found, seconds=2.5)).splitlines()[0]
    assert first.startswith("1,000,003 of 1,000,003 layouts considered in 2.5 s, 6 of them evaluated")


def test_each_runner_up_says_what_it_loses_by(found):
    """The second is 10 % behind for its tensor parallel communication; the best loses by nothing."""
    table = next(block for block in search_screen(found) if block.title == "the best layouts")
    assert [row.cells[3] for row in table.rows] == ["", "+10 %", "+20 %"]
    assert [row.cells[5] for row in table.rows] == ["", "tensor parallel communication", "pipeline bubble"]


def test_only_the_top_is_listed(found):
    """`--top 2` lists two."""
    table = next(block for block in search_screen(found, top=2) if block.title == "the best layouts")
    assert len(table.rows) == 2


def test_losers_are_counted_by_reason(found):
    """Each reason with its number of layouts, and what the nearest one misses."""
    text = draw(search_screen(found))
    assert "900,000" in text
    assert "nearest misses 3 GiB" in text
    assert "40 heads over tp 16" in text


def test_both_fronts_are_shown(found):
    """Time against memory, and days against money."""
    titles = [block.title for block in search_screen(found)]
    assert any(title.startswith("time against memory") for title in titles)
    assert any(title.startswith("days against money") for title in titles)


def test_nothing_fits_shows_what_comes_nearest(found):
    """Without a best, the layouts that hold least are listed, over the limit and marked so."""
    from dataclasses import replace

    none = replace(found, best=(), pareto_memory=(), nearest=(candidate(20.0, 100, data_parallel=8),))
    blocks = search_screen(none)
    assert blocks[0].lines[0].startswith("no layout fits")
    assert blocks[1].rows[0].mark == "bad"


def test_a_layout_in_one_line():
    """The field's short words; what is 1 or off is left out."""
    strategy = Strategy(
        tensor_parallel=8,
        sequence_parallel=True,
        pipeline_parallel=4,
        schedule="interleaved",
        virtual_stages=2,
        context_parallel=2,
        data_parallel=16,
        expert_parallel=8,
        shard_level=3,
        shard_group=4,
        reshard=False,
        micro_batch_size=2,
    )
    assert strategy_text(strategy, Recipe(recompute="selective")) == (
        "tp8 sp cp2 ring pp4 interleaved vp2 ep8 dp16 zero3/4 no-reshard mb2 recompute selective"
    )


def test_the_json_has_every_point_of_the_answer(found):
    """Full numbers: the best, the fronts, and the losers' counts."""
    answer = found_to_dict(found, seconds=2.5)
    assert [each["step_s"] for each in answer["best"]] == [10.0, 11.0, 12.0]
    assert sum(each["num_points"] for each in answer["losses"]) == 1_000_000
    assert answer["pareto_money"][0]["money"] == 53_760.0
    assert answer["search_s"] == 2.5
