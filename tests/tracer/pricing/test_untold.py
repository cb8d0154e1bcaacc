import torch

from torchledger.tracer import Recorder
from torchledger.tracer.pricing.untold import WHY, why


def test_what_cannot_be_told_says_why_and_how_much_it_moves():
    """A matrix exponential's degree follows the matrix's norm."""
    matrix = torch.eye(3)
    with Recorder() as recorder:
        torch.linalg.matrix_exp(matrix)
    ledger = recorder.trace().ledger
    (line,) = ledger.unknown_lines
    assert (line.work.flops_full, line.work.bytes_read) == (None, 3 * 3 * 4)
    assert any("norm" in text for text in ledger.assumptions)


def test_the_real_part_of_a_complex_number_is_real():
    z = torch.ones(3, dtype=torch.complex64)
    with Recorder() as recorder:
        torch.logaddexp2(torch.ones(3), torch.ones(3))
        torch.erfinv(z.real)
    assert recorder.trace().ledger.is_complete


def test_a_reason_holds_for_the_operation_in_place_too():
    assert why("gcd_") == why("gcd") != ""
    assert why("add") == ""
    assert all(WHY.values())
