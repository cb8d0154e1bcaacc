"""The screen of an audit: one sentence, what follows from the figures, ways to the printed one, the table."""

import pytest

from torchledger.machine import get
from torchledger.planner.claim import Claim, audit
from torchledger.planner.printed import read_printed
from torchledger.spec.presets import get as preset
from torchledger.view.audit import audit_screen
from torchledger.view.screen import Lines, Table


def screen(claim):
    found = audit(preset("gpt2"), 1024, get("h100"), "bf16", claim)
    return found, audit_screen("gpt2", "1 × H100", found, claim, ("a",))


@pytest.mark.parametrize(
    ("figures", "words"),
    [
        ({"tokens_per_s": "379000"}, "MFU 19.5 % to 41.7 % by convention"),
        ({"tokens_per_s": "379000", "mfu": "28.6%"}, "28.6% is what 6N gives"),
        ({"tokens_per_s": "379000", "mfu": "104%"}, "only by another peak, model or recompute"),
        ({"tokens_per_s": "379000", "mfu": "1.2345%"}, "by no convention that is known here"),
        ({"flops_per_s": "4e14"}, "40.4 % of the peak"),
    ],
)
def test_the_headline_says_what_was_found(figures, words):
    """Reproduced, reproduced by a mistake, by nothing, or no figure to reproduce."""
    _, blocks = screen(Claim(**{name: read_printed(text) for name, text in figures.items()}))
    assert words in blocks[0].lines[0]


def test_rows_that_reproduce_are_marked():
    """The convention that gives the printed figure is `good`, and says which figure."""
    _, blocks = screen(Claim(read_printed("379000"), None, read_printed("28.6%")))
    table = next(block for block in blocks if isinstance(block, Table))
    assert [(row.cells[0], row.cells[-1]) for row in table.rows if row.mark == "good"] == [("6N", "MFU")]


def test_an_impossible_claim_stands_out():
    """Its findings are a warning."""
    found, blocks = screen(Claim(read_printed("379000"), None, read_printed("104%")))
    assert not found.is_possible
    assert any(isinstance(block, Lines) and block.mark == "warning" for block in blocks)


def test_hardware_flops_are_shown_where_hfu_is_claimed():
    """Two tables with a printed HFU, one without."""
    _, plain = screen(Claim(read_printed("379000")))
    _, both = screen(Claim(read_printed("379000"), hfu=read_printed("40%")))
    assert [sum(isinstance(block, Table) for block in blocks) for blocks in (plain, both)] == [1, 2]
