from hypothesis import given
from hypothesis import strategies as st

from torchledger.view.layout import lay_out
from torchledger.view.screen import Row, Table

ROWS = (Row(("layers.*.mlp.up", "30", "12 GiB", "because of the weights of it")), Row(("head", "1", "2 GiB", "")))
TABLE = Table(("<module", "FLOPs", "moved", "<why"), ROWS, optional=("moved",))


def texts(table, width=None):
    return [line.text for line in lay_out(table, width)[0]]


def test_without_a_width_nothing_is_left_out():
    """In a pipe every column is there, however long the lines are."""
    assert texts(TABLE) == [
        "module           FLOPs   moved  why",
        "layers.*.mlp.up     30  12 GiB  because of the weights of it",
        "head                 1   2 GiB",
    ]


def test_optional_columns_go_first():
    """A little too narrow: the optional column is left out, and its title is told."""
    lines, hidden = lay_out(TABLE, 55)
    assert hidden == ("moved",)
    assert lines[1].text == "layers.*.mlp.up     30  because of the weights of it"


def test_prose_moves_below_its_row():
    """Narrower still: the trailing column of prose stands under its row, folded to the width."""
    lines, _ = lay_out(TABLE, 30)
    assert [(line.part, line.text) for line in lines] == [
        ("head", "module           FLOPs"),
        ("row", "layers.*.mlp.up     30"),
        ("below", "    because of the weights of"),
        ("below", "    it"),
        ("row", "head                 1"),
    ]


def test_at_last_the_text_is_folded():
    """Where nothing else helps, the widest column of text takes more lines; no letter is lost."""
    table = Table(("<name", "size"), (Row(("a.rather.long.name.of.a.module", "12")),))
    lines = texts(table, 20)
    assert all(len(line) <= 20 for line in lines)
    assert "".join(line[:14].strip() for line in lines[1:]) == "a.rather.long.name.of.a.module"


def test_a_title_is_folded_before_a_number_is_cut():
    """A long title above short numbers takes two lines; every number is whole, at the right of its column."""
    table = Table(("<name", "held by the chip"), (Row(("weights", "42.8B")), Row(("moments", "7B"))))
    assert texts(table, 20) == [
        "name     held by the",
        "                chip",
        "weights        42.8B",
        "moments           7B",
    ]


def test_marks_follow_the_rows():
    """Every line of a row carries the row's mark."""
    table = Table(("<a", "b", "<why"), (Row(("x", "1", "a long reason for it"), mark="bad"),))
    assert {line.mark for line in lay_out(table, 15)[0] if line.part != "head"} == {"bad"}


@given(
    rows=st.lists(st.tuples(st.text("ab. ", max_size=40), st.text("0123", max_size=9), st.text("xy ", max_size=60))),
    width=st.integers(min_value=40, max_value=120),
)
def test_lines_fit_whatever_is_in_them(rows, width):
    """No line is wider than the terminal, and every number is there."""
    table = Table(("<name", "size", "<why"), tuple(Row(row) for row in rows))
    lines = texts(table, width)
    assert all(len(line) <= width for line in lines)
    for _, number, _ in rows:
        assert any(number in line for line in lines)
