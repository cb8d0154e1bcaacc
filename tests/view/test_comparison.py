import pytest

from torchledger.ledger import Convention, ConventionMismatch, Ledger, Line, Work
from torchledger.view.comparison import apart_table, ledger_differences


def ledger(flops, **place):
    return Ledger((Line("mlp.up", "matmul", Work.of_flops(flops, bytes_kept=8), "matmul", **place),))


def by_name(differences):
    return {difference.quantity: difference for difference in differences}


def test_phases_and_the_whole_are_held_against_each_other():
    """Each phase and the total, with the tolerance that was asked for."""
    found = by_name(ledger_differences(ledger(12), ledger(16), tolerance=0.25))
    assert found["forward_flops"].difference == found["total_flops"].difference == 16 - 12
    assert found["total_flops"].within is True
    assert by_name(ledger_differences(ledger(12), ledger(16)))["total_flops"].within is False


def test_a_phase_that_only_one_side_has_is_not_forgotten():
    """A missing phase is zero FLOPs on that side."""
    found = by_name(ledger_differences(ledger(12), ledger(12, phase="backward")))
    assert (found["backward_flops"].predicted, found["backward_flops"].measured) == (0, 12)


def test_bytes_have_a_target_on_demand_only():
    """Without a tolerance for bytes they are told, not judged."""
    assert by_name(ledger_differences(ledger(12), ledger(12)))["kept_bytes"].within is None
    assert by_name(ledger_differences(ledger(12), ledger(12), bytes_tolerance=0))["kept_bytes"].within is True


def test_conventions_must_be_the_same():
    """Two ledgers under different conventions are refused."""
    with pytest.raises(ConventionMismatch):
        ledger_differences(ledger(12), ledger(12).under(Convention(operations="all")))


def test_accounts_that_are_apart_come_largest_first():
    """Only accounts whose FLOPs differ are listed, the largest difference first, cut off with a note."""
    mine = Ledger(tuple(Line(f"m{n}", "matmul", Work.of_flops(n), "matmul") for n in range(1, 5)))
    table = apart_table(mine, Ledger(), limit=2)
    assert [row.cells[0] for row in table.rows] == ["m4", "m3"]
    assert "2 more" in table.note
    assert apart_table(mine, mine) is None


def test_bytes_alone_are_not_apart():
    """An account whose FLOPs agree is not listed for its bytes."""
    other = Ledger((Line("mlp.up", "matmul", Work.of_flops(12), "matmul"),))
    assert apart_table(ledger(12), other) is None
