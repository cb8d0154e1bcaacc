import pytest

from torchledger.ledger import Difference
from torchledger.view.closing import closing_table, show_amount


def row(difference):
    table = closing_table([difference])
    return dict(zip(table.titles, table.rows[0].cells, strict=True)), table.rows[0].mark


def test_over_the_tolerance_is_marked():
    """A second too long is over, and the row is marked."""
    cells, mark = row(Difference("step_s", "s", 2.0, 3.0, 0.25))
    assert (cells[""], mark) == ("over", "bad")
    assert cells["difference"] == "1 s"


def test_exact_is_said():
    """A tolerance of zero is the word exact."""
    cells, mark = row(Difference("step_flops", "FLOP", 100, 100, 0))
    assert (cells["tolerance"], cells[""], mark) == ("exact", "ok", "good")


def test_without_a_tolerance_there_is_no_verdict():
    """A quantity without a target is told, not judged."""
    cells, mark = row(Difference("mfu", "1", 0.43, 0.41))
    assert (cells[""], mark) == ("", "")
    assert cells["predicted"] == "43 %"


def test_the_difference_of_two_utilisations_is_in_points():
    """52.9 % instead of 61.7 % is 8.8 points less, and 8.8 / 52.9 = 16.6 % less: two numbers, two units."""
    cells, _ = row(Difference("mfu", "1", 0.617, 0.529))
    assert (cells["difference"], cells["relative"]) == ("-8.80 points", "-16.6 %")
    cells, _ = row(Difference("mfu", "1", 0.617, None))
    assert cells["difference"] == "unknown"


def test_a_difference_below_three_figures_shows_every_digit():
    """Two whole amounts that look alike rounded are shown whole, or the difference could not be seen."""
    cells, _ = row(Difference("peak_bytes", "B", 2**30, 2**30 + 8, 0))
    assert cells["predicted"] == "1,073,741,824"
    assert cells["measured"] == "1,073,741,832"
    assert cells["difference"] == "8"


def test_unknown_stays_unknown():
    """What was not measured is unknown, never zero, and never inside a tolerance."""
    cells, mark = row(Difference("step_s", "s", 2.0, None, 0.25))
    assert (cells["measured"], cells["relative"], mark) == ("unknown", "unknown", "bad")


@pytest.mark.parametrize(
    ("unit", "shown"), [("B", "1 KiB"), ("s", "17m 04s"), ("FLOP", "1.02 kFLOP"), ("W", "1,024 W")]
)
def test_units_decide_the_form(unit, shown):
    """An amount is shown in its unit, an unknown unit after the number."""
    assert show_amount(1024, unit) == shown
