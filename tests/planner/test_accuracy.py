"""Errors over many rows are told as shares."""

import pytest

from torchledger.planner.accuracy import Accuracy, percentile


def test_errors_of_ten_rows():
    """Predicted 1.01, 1.02 ... 1.10 of 1: mean 5.5 %, the median the fifth, the ninetieth percentile the ninth."""
    found = Accuracy.of((str(i), 1 + i / 100, 1.0) for i in range(1, 11))
    assert found.num_rows == 10
    assert found.mean == pytest.approx(0.055)
    assert (found.median, found.ninetieth) == (pytest.approx(0.05), pytest.approx(0.09))
    assert (found.worst, found.worst_name) == (pytest.approx(0.10), "10")


def test_bias_keeps_the_sign_and_the_mean_does_not():
    """Half of it and twice it: bias (-0.5 + 1) / 2, mean (0.5 + 1) / 2."""
    found = Accuracy.of([("slow", 2.0, 1.0), ("fast", 0.5, 1.0)])
    assert (found.bias, found.mean) == (pytest.approx(0.25), pytest.approx(0.75))


def test_no_rows_are_no_accuracy():
    """Zero error over zero rows would be a boast."""
    with pytest.raises(ValueError, match="no rows"):
        Accuracy.of([])


def test_percentiles_are_values_that_occur():
    """Nearest rank: the first of one, the second of three for the median."""
    assert percentile([7.0], 0.9) == 7.0
    assert percentile([1.0, 2.0, 4.0], 0.5) == 2.0
