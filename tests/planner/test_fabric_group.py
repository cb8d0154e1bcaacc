import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.planner.fabric_group import Group, group_over


def _counted(size, stride, domain, num_ranks):
    """The definition, rank by rank: the worst of all groups that lie side by side."""
    found = []
    for block in range(num_ranks // (size * stride)):
        for i in range(stride):
            places = [(block * size * stride + i + stride * j) // domain for j in range(size)]
            counts = [places.count(place) for place in set(places)]
            found.append((len(counts), min(counts), max(counts)))
    return max(n for n, _, _ in found), min(low for _, low, _ in found), max(high for _, _, high in found)


@given(st.integers(2, 24), st.integers(1, 12), st.integers(1, 12), st.integers(1, 6))
def test_a_group_is_what_counting_rank_by_rank_says(size, stride, domain, blocks):
    """Islands, fewest and most members: never better than the worst group, and exact where strides fit islands."""
    num_ranks = size * stride * blocks
    group = group_over(size, stride, domain, num_ranks)
    domains, least, most = _counted(size, stride, domain, num_ranks)
    assert group.num_domains == domains
    if domain % stride == 0 or stride >= domain:
        assert (group.least, group.most) == (least, most)
    else:
        assert group.least <= least
        assert group.most >= most


@pytest.mark.parametrize(
    ("size", "stride", "expected"),
    [
        (8, 1, Group(8, 1, 8, 8)),  # an island
        (4, 1, Group(4, 1, 4, 4)),  # half of one
        (4, 2, Group(4, 1, 4, 4)),  # every second chip of one
        (16, 1, Group(16, 2, 8, 8)),  # two islands
        (8, 8, Group(8, 8, 1, 1)),  # one chip of each
        (16, 4, Group(16, 8, 2, 2)),  # two of each
        (10, 1, Group(10, 2, 2, 8)),  # uneven: ranks 0 to 9 are 8 and 2, 10 to 19 are 6 and 4
    ],
)
def test_islands_of_eight(size, stride, expected):
    """Tensor parallel groups are neighbours; data parallel ones stand as far apart as those are large."""
    assert group_over(size, stride, 8, 160) == expected


def test_a_group_of_one_shares_nothing():
    """It is its own island."""
    assert group_over(1, 64, 8, 64) == Group(1, 1, 1, 1)
    assert Group(10, 2, 2, 8).per_domain == 5


def test_a_group_beyond_the_cluster_is_our_own_mistake():
    """Layouts that do not fit are refused before anybody asks for their collectives."""
    with pytest.raises(AssertionError, match="the caller checks"):
        group_over(16, 8, 8, 64)
