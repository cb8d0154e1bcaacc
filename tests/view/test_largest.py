"""The screens of memory alone: the chosen precision's answer first, every other beside it."""

import pytest

from torchledger.planner import Holding, state_bytes
from torchledger.planner.state import PRECISIONS
from torchledger.view.largest import chips_screen, holding_screen
from torchledger.view.screen import Lines, Table
from torchledger.view.terminal import draw

GB = 10**9


def holdings(level=3):
    return [Holding("nominal", 8, 80 * GB, state_bytes(name), level) for name in PRECISIONS]


def parts(blocks):
    table = next(block for block in blocks if isinstance(block, Table))
    lines = [block for block in blocks if isinstance(block, Lines)]
    return lines, table


@pytest.mark.parametrize("screen", ["largest", "chips"])
def test_every_precision_is_a_row_and_the_chosen_one_is_marked(screen):
    """One row each, in the order of the table of precisions."""
    all_of_them = holdings()
    blocks = (
        holding_screen(all_of_them, "H100", ("a",), all_of_them[0])
        if screen == "largest"
        else chips_screen(all_of_them, 70e9, "H100", ("a",), all_of_them[0])
    )
    lines, table = parts(blocks)
    assert [row.cells[0] for row in table.rows] == list(PRECISIONS)
    assert [row.cells[0] for row in table.rows if row.mark == "good"] == ["fp32"]
    assert lines[-1].lines == ("a",)


def test_the_division_shows_what_stands_on_every_chip():
    """With level 1 weights and gradients come off the chip before the rest is divided."""
    all_of_them = holdings(level=1)
    lines, _ = parts(chips_screen(all_of_them, 5e9, "H100", (), all_of_them[0]))
    assert lines[1].lines[1] == "chips = 5B · 8 bytes / (80 GB - 40 GB on every chip) = 1"


def test_no_number_of_chips_is_an_answer_too():
    """It says so in place of a number."""
    all_of_them = holdings(level=0)
    lines, table = parts(chips_screen(all_of_them, 70e9, "H100", (), all_of_them[0]))
    assert lines[0].lines[0] == "no number of H100 holds 70B parameters"
    assert {row.cells[2] for row in table.rows} == {"none"}


def test_every_precision_is_shown_beside_the_chosen_one():
    """The largest model by every precision, on nominal and on reported bytes."""
    both = [
        Holding(label, 8, num_bytes, state_bytes(precision))
        for precision in ("fp32", "bf16-pure")
        for label, num_bytes in (("nominal", 80 * 10**9), ("reported", 81559 * 2**20))
    ]
    text = draw(holding_screen(both, "H100 SXM", ["activations are not counted"], both[0]))
    assert text.startswith("40B parameters are the most that 8 × H100 SXM can hold")
    assert "4+4+8 = 16" in text
    assert "80B" in text
    assert "79.6 GiB" in text
    assert "activations are not counted" in text
