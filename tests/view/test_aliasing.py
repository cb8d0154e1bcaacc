"""A tensor in its storage, drawn."""

from torchledger.ledger.aliasing import Aliasing, view_answer
from torchledger.view.aliasing import aliasing_html, aliasing_text, register


def columns() -> Aliasing:
    """The first two columns of a (2, 3), transposed."""
    shape, stride = (2, 2), (1, 3)
    return Aliasing("x", shape, stride, 0, "fp32", 4, 24, views=(view_answer(shape, stride, (4,)),))


def test_each_place_shows_its_index():
    """Six places: 0,0 and 0,1 are three apart; the third column is of nobody."""
    (line,) = [line for line in aliasing_text(columns()).splitlines() if line.strip().startswith("0 |")]
    assert line.split("|")[1].split() == ["0,0", "1,0", ".", "0,1", "1,1", "."]


def test_the_arithmetic_is_written_out():
    """Offset plus index times stride, with numbers."""
    text = aliasing_text(columns())
    assert "storage[i + 3·j]" in text
    assert "x[1, 1] = storage[0 + 1·1 + 1·3] = storage[4]" in text


def test_a_view_that_fails_says_what_works():
    """Why, and lines to write instead."""
    text = aliasing_text(columns())
    assert "x.view(4)" in text
    assert "fails: 4 reaches beyond dimension 1" in text
    assert "x.reshape(4)" in text


def test_large_storages_are_a_stretch():
    """A quarter of a storage is a quarter of the line."""
    text = aliasing_text(Aliasing("x", (1000,), (1,), 1000, "fp32", 4, 16_000))
    (line,) = [line for line in text.splitlines() if "# is where" in line]
    assert line.count(".") == 48
    assert line.count("#") == 16 + 1


def test_it_shows_itself():
    """Once registered it prints as the screen, and a notebook shows escaped HTML."""
    register()
    assert str(columns()) == aliasing_text(columns())
    assert "<dl" in aliasing_html(columns())
    assert columns()._repr_html_() == aliasing_html(columns())
