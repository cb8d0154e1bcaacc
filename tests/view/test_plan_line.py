from dataclasses import replace

from torchledger.planner.outcome import Slot
from torchledger.view.plan_line import schedule_lines


def rows(plan, **options):
    return [line.split("  ", 1)[1] for line in schedule_lines(plan, **options)[0].lines]


def pressed(text):
    """Each run of one sign as one sign."""
    return "".join(sign for index, sign in enumerate(text) if index == 0 or text[index - 1] != sign)


def test_micro_batches_come_in_their_order(plan):
    """GPipe: all forward passes, a wait, all backward passes, the optimizer; the last stage turns at once."""
    first, *_, last = rows(plan)
    assert pressed(first) == "01234567.abcdefgho"
    assert pressed(last) == ".01234567abcdefgh.o"


def test_a_row_is_as_long_as_its_step(plan):
    """All rows are equally long and no longer than asked."""
    lengths = {len(row) for row in rows(plan, width=70)}
    assert len(lengths) == 1
    assert max(lengths) <= 70


def test_a_step_of_many_micro_batches_shows_both_ends(plan):
    """1,000 micro-batches do not fit in a row: its beginning and its end are drawn, one sign a forward pass."""
    slots = tuple(Slot(m, m + 1, "forward", m) for m in range(1000))
    stage = replace(plan.stages[0], time_line=slots)
    long = replace(plan, stages=(stage, replace(plan.stages[1], time_line=slots)), step_s=1000.0)
    row = rows(long)[0]
    assert row.startswith("0123456789")
    assert row.endswith("0123456789")
    assert "~" in row


def test_one_rank_has_no_pipeline_to_draw(plan):
    """Without stages there is nothing to see."""
    assert schedule_lines(replace(plan, stages=plan.stages[:1])) == ()


def test_weight_gradients_have_their_sign(plan):
    """Zero-bubble schedules compute them apart; the legend says so."""
    slots = (Slot(0, 1, "forward", 0), Slot(1, 2, "backward", 0), Slot(2, 3, "weight gradient", 0))
    two = replace(plan, stages=tuple(replace(each, time_line=slots) for each in plan.stages[:2]), step_s=3.0)
    drawn, legend = schedule_lines(two)
    assert pressed(drawn.lines[0].split("  ")[1]) == "0aw"
    assert "w weight gradients" in legend.lines[0]


def test_a_long_pipeline_is_drawn_at_its_ends(plan):
    """Of 40 stages 16 are drawn, and the gap says how many are not."""
    many = replace(
        plan,
        stages=tuple(replace(each, stage=replace(each.stage, index=n)) for n in range(40) for each in plan.stages[:1]),
    )
    lines = schedule_lines(many)[0].lines
    assert len(lines) == 17
    assert "24 stages left out" in lines[8]


def test_copies_to_and_from_the_host_have_their_sign(plan):
    """Around the optimizer's; the legend says so."""
    slots = (Slot(0, 1, "forward", 0), Slot(1, 2, "to host"), Slot(2, 3, "optimizer"), Slot(3, 4, "from host"))
    two = replace(plan, stages=tuple(replace(each, time_line=slots) for each in plan.stages[:2]), step_s=4.0)
    drawn, legend = schedule_lines(two)
    assert pressed(drawn.lines[0].split("  ")[1]) == "0hoh"
    assert "h copies to and from the host; o optimizer" in legend.lines[0]
