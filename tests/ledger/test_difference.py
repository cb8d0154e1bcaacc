"""`Difference`: a prediction held against a measurement."""

import math

from torchledger.ledger import Difference, beyond


def test_the_difference_is_measured_minus_predicted_and_relative_to_the_measured():
    row = Difference("step_s", "s", predicted=2.0, measured=1.6, tolerance=0.25)
    assert row.difference == 1.6 - 2.0
    assert math.isclose(row.relative, -0.4 / 1.6)
    assert row.within


def test_a_tolerance_of_zero_passes_only_what_is_equal():
    assert Difference("step_flops", "FLOP", 7, 7, tolerance=0).within
    assert not Difference("step_flops", "FLOP", 7, 8, tolerance=0).within
    assert Difference("waste_bytes", "B", 0, 0, tolerance=0).within


def test_an_unknown_side_is_never_within_and_has_no_difference():
    for row in (Difference("mfu", "1", None, 0.4, 0.1), Difference("mfu", "1", 0.4, None, 0.1)):
        assert row.difference is None
        assert row.relative is None
        assert row.within is False


def test_without_a_tolerance_there_is_no_verdict():
    assert Difference("mfu", "1", 0.4, 0.1).within is None


def test_a_measured_zero_is_infinitely_far_from_a_prediction():
    assert math.isinf(Difference("x", "B", 3, 0, tolerance=100).relative)
    assert not Difference("x", "B", 3, 0, tolerance=100).within


def test_beyond_names_exactly_those_outside():
    inside, outside = Difference("a", "s", 1, 1, 0), Difference("b", "s", 1, 2, 0.1)
    silent, unknown = Difference("c", "s", 1, 9), Difference("d", "s", 1, None, 0.5)
    assert beyond([inside, outside, silent, unknown]) == (outside, unknown)
