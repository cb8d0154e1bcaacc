import re
from dataclasses import replace
from fractions import Fraction

import pytest

from torchledger.spec import Strategy
from torchledger.view.plan_layout import headline, layout_text, memory_bars, plan_screen, time_bars
from torchledger.view.style import Style
from torchledger.view.terminal import draw


def amounts(bars):
    """The printed amounts of bars, and the one in their title."""
    number = r"([\d,]+(?:\.\d+)?) (s|ms|GiB|MiB)"
    parts = [re.match(number, bar.text) for bar in bars.bars]
    whole = re.search(number, bars.title.partition(": ")[2])
    assert {part[2] for part in parts} == {whole[2]}
    return [Fraction(part[1].replace(",", "")) for part in parts], Fraction(whole[1].replace(",", ""))


@pytest.mark.parametrize("bars_of", [time_bars, memory_bars])
def test_printed_parts_add_up_to_the_printed_total(plan, bars_of):
    """A reader who adds the printed parts gets the printed total."""
    parts, whole = amounts(bars_of(plan))
    assert len(parts) > 2
    assert sum(parts) == whole


def test_the_step_is_printed_alike_everywhere(plan):
    """Headline, facts and bars say the same step: (4 + 8 - 1) · 0.3 s + 0.05 s."""
    text = draw(plan_screen(plan))
    assert "fits: 3.350 s a step" in text.splitlines()[0]
    assert len(re.findall(r"3\.350 s", text)) >= 3


def test_the_causes_come_in_their_order(plan):
    """Matmuls first, the bubble before the optimizer, whatever the order of the mapping."""
    labels = [bar.label for bar in time_bars(plan).bars]
    assert labels == ["matmul", "attention", "memory-bound operations", "pipeline bubble", "optimizer"]


def test_what_does_not_fit_says_by_how_much(plan):
    """8.5 GiB of 8 GiB; the screen begins with it."""
    small = replace(plan, capacity_bytes=8 * 2**30)
    assert headline(small) == "gpt2 on 8 × H100 SXM does not fit: 8.50 GiB of 8 GiB a chip"
    assert plan_screen(small)[0].mark == "warning"


def test_an_unknown_memory_is_no_verdict(plan):
    """Where the chip's memory is not known, nobody says that it fits."""
    blind = replace(plan, capacity_bytes=None)
    assert "unknown" in headline(blind)
    assert "the chip's memory is unknown" in memory_bars(blind).title


def test_the_convention_of_mfu_is_on_the_screen(plan):
    """MFU comes with how it is counted."""
    line = next(line for line in draw(plan_screen(plan)).splitlines() if line.startswith("MFU "))
    assert "contractions only" in line
    assert "recompute out" in line


def test_the_assumptions_come_last(plan):
    """What was assumed ends the screen."""
    assert draw(plan_screen(plan)).rstrip().endswith("made by hand for the tests")


@pytest.mark.parametrize(
    ("strategy", "text"),
    [
        (Strategy(), "data 1"),
        (Strategy(data_parallel=8, shard_level=3, shard_group=4), "data 8 (ZeRO 3 in groups of 4)"),
        (
            Strategy(
                tensor_parallel=8, sequence_parallel=True, context_parallel=2, pipeline_parallel=4, schedule="1f1b"
            ),
            "tensor 8 (sequence parallel) · context 2 (ring) · pipeline 4 (1f1b)",
        ),
        (
            Strategy(pipeline_parallel=2, schedule="interleaved", virtual_stages=3),
            "pipeline 2 (interleaved, 3 chunks a rank)",
        ),
        (
            Strategy(data_parallel=8, expert_parallel=4),
            "data 8 (experts over 4 of the data · context ranks)",
        ),
    ],
)
def test_a_layout_in_words(strategy, text):
    """What splits what, sizes of 1 left out."""
    assert layout_text(strategy) == text


@pytest.mark.parametrize("style", [Style(rich=True, width=60), Style(rich=True, width=200), Style(unicode=False)])
def test_every_terminal_shows_the_totals(plan, style):
    """Narrow, wide and ASCII terminals show the step and the peak."""
    text = draw(plan_screen(plan), style)
    assert "3.350 s" in text
    assert "8.500 GiB" in text


def test_what_rounding_leaves_is_no_cause(plan):
    """A difference of equal sums may leave 1e-17 s of a bubble; nobody sees it."""
    stage = replace(plan.stages[0], seconds={"matmul": 1.0, "pipeline bubble": 2e-17})
    one = replace(plan, stages=(stage,), step_s=1.0)
    assert [bar.label for bar in time_bars(one).bars] == ["matmul"]
    assert "0 s, 0 %" in draw(plan_screen(one))


def test_a_narrow_terminal_folds_no_bar_and_no_time_line(plan):
    """On 60 columns every cause is one line, and every stage's row of the time line too."""
    lines = draw(plan_screen(plan, width=60), Style(rich=True, width=60)).splitlines()
    for cause in ("matmul", "pipeline bubble", "activations"):
        assert sum(line.startswith(cause) and line.endswith("%") for line in lines) == 1
    rows = [
        line
        for line in lines
        if line.strip().startswith(("0  0", "3  .")) and set(line) <= set("0123456789abcdefgho. ")
    ]
    assert len(rows) == 2
    assert all(len(line) <= 60 for line in lines)
