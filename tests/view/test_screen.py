import pytest

from torchledger.view.screen import Lines, Row, Table, assumed, table, tree_branches


def test_a_row_has_a_cell_for_every_column():
    """A row with too few cells is our own mistake, found where the table is made."""
    with pytest.raises(AssertionError, match="cells"):
        Table(("<a", "b"), (Row(("1",)),))


def test_the_title_says_the_alignment():
    """A title that starts with < is left-aligned, and the sign is not shown."""
    drawn = table(("<name", "bytes"), [("a", "1")])
    assert drawn.titles == ("name", "bytes")
    assert drawn.is_left(0)
    assert not drawn.is_left(1)


def test_branches_of_a_tree():
    """A branch goes on while another child of the same parent follows."""
    assert tree_branches([0, 1, 2, 2, 1, 0, 1]) == ("", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "", "└─ ")


def test_assumptions_are_one_block_or_none():
    """Equal assumptions are told once; without any there is no block."""
    assert assumed(["a", "b", "a"]) == (Lines(("a", "b"), "assumes", "note"),)
    assert assumed([]) == ()
