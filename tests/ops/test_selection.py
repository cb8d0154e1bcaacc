import itertools
from math import ceil, log2

import pytest

from torchledger import ops
from torchledger.ops.selection import search_compares, sort_compares


def _merge_sort(values, compares):
    if len(values) < 2:
        return values
    middle = (len(values) + 1) // 2
    left, right = _merge_sort(values[:middle], compares), _merge_sort(values[middle:], compares)
    merged = []
    while left and right:
        compares.append(1)
        merged.append(left.pop(0) if left[0] <= right[0] else right.pop(0))
    return merged + left + right


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7])
def test_a_sort_is_a_merge_sort_at_worst(n):
    """The most compares over every order of n numbers."""
    worst = 0
    for order in itertools.permutations(range(n)):
        compares = []
        assert _merge_sort(list(order), compares) == list(range(n))
        worst = max(worst, len(compares))
    assert sort_compares(n) == worst


@pytest.mark.parametrize("n", [1, 2, 5, 8, 1000])
def test_a_search_halves(n):
    assert search_compares(n) == ceil(log2(n + 1))


def test_integers_are_no_floating_point():
    work = ops.order(2, 8, floating=False, element_bytes=8)[0].work
    assert (work.flops_full, work.bytes_read, work.bytes_written) == (0, 2 * 8 * 8, 2 * 8 * 8 + 2 * 8 * 8)
    assert ops.search(10, 7, floating=False)[0].work.flops_full == 0


def test_a_histogram_looks_for_its_range_where_none_is_given():
    given, looked_for = (ops.histogram(10, 4, find_range=which)[0].work.flops_full for which in (False, True))
    assert (given, looked_for - given) == (5 * 10, 2 * 9)
