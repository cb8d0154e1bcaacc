import random
import statistics

import pytest

from torchledger.trainer.sliding import Sliding, middle_of


@pytest.mark.parametrize("length", [1, 2, 7, 50])
def test_the_median_is_that_of_the_last_values(length):
    """Whatever comes, equal values too: as the library's median of the last so many."""
    chance = random.Random(length)
    values = [round(chance.gauss(0, 1), 1) for _ in range(300)]
    window = Sliding(length)
    assert window.median is None
    for number, value in enumerate(values, start=1):
        window.add(value)
        last = values[max(0, number - length) : number]
        assert window.ordered == sorted(last)
        assert window.median == statistics.median(last)
        assert len(window) == len(last)


def test_the_middle_of_two_is_their_mean():
    """Of an even number of values the two in the middle count alike: (2 + 4) / 2 = 3."""
    assert middle_of([1.0, 2.0, 4.0, 9.0]) == 3.0
