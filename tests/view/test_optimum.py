"""The screen of compute-optimal training: the chosen law's answer and arithmetic, every law as a row."""

from torchledger.planner.budget import law, laws, optimum
from torchledger.view.optimum import optimum_screen
from torchledger.view.screen import Lines, Table


def test_every_law_is_a_row_and_the_chosen_one_is_marked():
    """A law without a loss leaves its cell empty, never zero."""
    everybody = tuple(optimum(each, flops=1e22) for each in laws())
    blocks = optimum_screen(optimum(law("replication"), flops=1e22), everybody, ("a",))
    table = next(block for block in blocks if isinstance(block, Table))
    assert [row.cells[0] for row in table.rows] == [each.name for each in laws()]
    assert [row.cells[0] for row in table.rows if row.mark == "good"] == ["replication"]
    assert [bool(row.cells[5]) for row in table.rows] == [each.loss is not None for each in laws()]
    assert isinstance(blocks[0], Lines)
    assert "are compute-optimal: 1.00e22 FLOP" in blocks[0].lines[0]
