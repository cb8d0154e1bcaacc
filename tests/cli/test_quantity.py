import click
import pytest

from torchledger.cli.quantity import COUNT, DAYS, FLOPS_PER_S, MONEY, OPEN, SHARE


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (COUNT, "70B", 70 * 10**9),
        (DAYS, "30", 30.0),
        (DAYS, "3d 12h", 3.5),
        (SHARE, "0.5", 0.5),
        (SHARE, "50%", 0.5),
        (MONEY, "$2.80", (2.8, "USD")),
        (FLOPS_PER_S, "989.5 TFLOP/s", 989.5e12),
    ],
)
def test_any_spelling_of_units(kind, text, value):
    """Options read what `units` reads."""
    assert kind.convert(text, None, None) == value


@pytest.mark.parametrize("kind", [COUNT, DAYS, SHARE, MONEY, FLOPS_PER_S])
def test_a_question_mark_stays_open(kind):
    """`?` is not read: it asks."""
    assert kind.convert(OPEN, None, None) == OPEN


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (COUNT, "many"),
        (DAYS, "soon"),
        (MONEY, "cheap"),
        *((SHARE, text) for text in ("half", "nan", "inf", "-1", "-5%")),
    ],
)
def test_what_cannot_be_read_says_so(kind, text):
    """A wrong spelling is wrong usage, with what was read."""
    with pytest.raises(click.BadParameter, match=text):
        kind.convert(text, None, None)
