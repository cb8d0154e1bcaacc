import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.mixture import LONGEST_STRETCH, Mixture

weights = st.lists(st.floats(0.001, 1000), min_size=1, max_size=7)


def counts(mixture, first, count):
    """Samples of each part among the first 0, 1, ..., count of a stretch."""
    parts, _ = mixture.draw(first, count)
    each = parts[:, None] == np.arange(len(mixture.shares))
    return np.concatenate([np.zeros((1, len(mixture.shares))), np.cumsum(each, axis=0)])


@given(weights)
def test_each_part_has_its_share_at_every_sample(weights):
    """From the beginning to any sample, each part's count is its share of them, within the bound that is told."""
    mixture = Mixture(weights)
    due = np.arange(3001)[:, None] * np.array(mixture.shares)
    assert abs(counts(mixture, 0, 3000) - due).max() <= mixture.largest_deviation + 1e-6


@given(weights)
def test_the_bound_is_small(weights):
    """Half a window of two parts, a whole one of at most four, less than two of any number."""
    bound = Mixture(weights).largest_deviation
    if len(weights) <= 4:
        assert bound <= (0, 0.5, 1, 1)[len(weights) - 1]
    assert bound < 2


@given(st.floats(0.001, 0.999), st.integers(0, 10**15))
def test_two_parts_have_their_shares_over_any_stretch(share, first):
    """Of two parts, over any stretch anywhere, each has its share within one window."""
    mixture = Mixture([share, 1 - share])
    due = np.arange(501)[:, None] * np.array(mixture.shares)
    assert abs(counts(mixture, first, 500) - due).max() <= 1 + 1e-6


@given(weights, st.integers(0, 2**45))
def test_each_part_is_a_stream_of_its_own(weights, first):
    """Within any stretch, a part's samples are numbered one after the other, whatever comes between."""
    parts, places = Mixture(weights).draw(first, 1000)
    for part in range(len(weights)):
        assert (np.diff(places[parts == part]) == 1).all()


@given(weights, st.integers(0, 2 * LONGEST_STRETCH), st.integers(0, 100))
def test_anywhere_at_once(weights, first, count):
    """Drawn anywhere, the stream is what it is there when drawn from its beginning."""
    mixture = Mixture(weights)
    whole = mixture.draw(0, first + count)
    here = mixture.draw(first, count)
    for all_of, some in zip(whole, here, strict=True):
        assert all_of[first:].tolist() == some.tolist()


@pytest.mark.parametrize("shares", [(1, 2), (2, 3), (1, 99), (1, 2, 5)])
def test_a_whole_period_is_exact(shares):
    """Weights 1 and 2 over 3 samples are one and two; in general whole weights over their sum, at every multiple."""
    mixture = Mixture(shares)
    found = counts(mixture, 0, 10 * sum(shares))[sum(shares) :: sum(shares)]
    if len(shares) == 2:
        assert found.tolist() == [[share * n for share in shares] for n in range(1, 11)]
    assert abs(found[-1] - 10 * np.array(shares)).max() <= 1


def test_one_part_is_the_plain_stream():
    """A mixture of one part is that part."""
    parts, places = Mixture([3.0]).draw(5, 4)
    assert (parts.tolist(), places.tolist()) == ([0] * 4, [5, 6, 7, 8])


def test_only_the_ratio_of_weights_counts():
    """Weights 1:2:3 and 10:20:30 are one mixture, and parts do not clump."""
    one, other = Mixture([1, 2, 3]).draw(0, 600)[0].tolist(), Mixture([10, 20, 30]).draw(0, 600)[0].tolist()
    assert one == other
    assert max(len(list(run)) for _, run in itertools.groupby(one)) <= 2
