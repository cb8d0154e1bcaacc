import pytest

from torchledger.planner import PlanError
from torchledger.planner.printed import Printed, read_printed


@pytest.mark.parametrize(
    ("text", "value", "half"),
    [
        ("66%", 0.66, 0.005),
        ("66.07%", 0.6607, 0.00005),
        ("0.4125", 0.4125, 0.00005),
        ("6,159.4", 6159.4, 0.05),
        ("238.3k", 238300, 50),
        ("2.66", 2.66, 0.005),
        ("4.345e14", 4.345e14, 0.5e11),
        ("10753", 10753, 0.5),
    ],
)
def test_digits_say_how_exact_a_figure_is(text, value, half):
    """Half a unit of the last digit, wherever the point, the percent sign or the exponent puts it."""
    printed = read_printed(text)
    assert printed.value == pytest.approx(value)
    assert printed.half == pytest.approx(half)
    assert printed.relative == pytest.approx(half / value)


def test_a_figure_is_reproduced_within_its_rounding():
    """66 % stands for 65.5 to 66.5; a speed known to 1 % widens that by 1 % of the figure."""
    printed = read_printed("66%")
    assert printed.is_reproduced_by(0.655)
    assert printed.is_reproduced_by(0.665)
    assert not printed.is_reproduced_by(0.6651)
    assert printed.is_reproduced_by(0.6651, relative=0.01)


def test_another_unit_keeps_the_digits():
    """653.4 TFLOP/s are 653.4e12 FLOP/s, known as well."""
    assert read_printed("653.4").times(1e12) == Printed(653.4e12, 0.05e12, "653.4")


@pytest.mark.parametrize("text", ["218,4", "30,8%", "1,23", "1234,567", "1,234,5", "1.234,5k"])
def test_a_comma_groups_three_digits_or_is_refused(text):
    """A decimal comma is not read as a number ten times as large: the message says to write a point."""
    with pytest.raises(PlanError, match=r"comma that groups no three digits; write a point"):
        read_printed(text)
    assert read_printed("1,234,567.5").value == 1234567.5


@pytest.mark.parametrize("text", ["1e41", "1e400", "1e-41"])
def test_a_figure_that_no_machine_has_is_refused(text):
    """Figures are bounded, so that products of them are floats."""
    with pytest.raises(PlanError, match="no figure of a machine"):
        read_printed(text)


@pytest.mark.parametrize("text", ["", "fast", "-3", "0", "1 2", "12q", "NaN"])
def test_what_is_no_figure_is_refused(text):
    """The message shows how figures are written."""
    with pytest.raises(PlanError, match=r"figure|above zero"):
        read_printed(text)
