"""A front keeps exactly what nothing else beats."""

import random

import pytest

from torchledger.planner.pareto import Front, pareto


@pytest.mark.parametrize("seed", range(20))
def test_the_front_is_what_nothing_beats(seed):
    """Of drawn points (many equal in one amount), the front has each that no other beats, once, whatever the order."""
    draw = random.Random(seed)
    points = [(draw.randrange(8), draw.randrange(8)) for _ in range(40)]

    def is_beaten(point):
        return any(a <= point[0] and b <= point[1] and (a, b) != point for a, b in points)

    expected = sorted({point for point in points if not is_beaten(point)})
    assert list(pareto(points, lambda each: each)) == expected
    front = Front()
    for point in sorted(points, reverse=True):
        front.add(*point, (), point)
    assert list(front.items) == expected
    for first in range(9):
        for second in range(9):
            beaten = any(a <= first and b <= second and (a, b) != (first, second) for a, b in points)
            assert front.beats(first, second) == beaten


def test_of_equal_items_the_smallest_rank_stays():
    """The order of arrival does not decide which of two equal items stays."""
    for order in (("b", "a"), ("a", "b")):
        front = Front()
        for name in order:
            front.add(1.0, 2.0, name, name)
        assert front.items == ("a",)
