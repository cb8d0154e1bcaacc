import hashlib
import itertools
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchledger.trainer.order import BatchOrder, Permutation, sample_windows

seeds = st.integers(-(2**70), 2**70)


def order_of(size, seed=0, epoch=0):
    return Permutation.keyed(size, seed, epoch)(np.arange(size)).tolist()


def plain_order(size, seed, epoch):
    """The permutation again, in plain integers, one element at a time."""
    text = f"torchledger order {seed} {epoch}".encode()
    keys = struct.unpack("<8Q", hashlib.blake2b(text, digest_size=64).digest())
    bits = (size - 1).bit_length()
    high_bits = bits // 2
    low_bits = bits - high_bits

    def mix(value, key):
        h = (value + key) % 2**64
        h = (h ^ (h >> 33)) * 0xFF51AFD7ED558CCD % 2**64
        h = (h ^ (h >> 33)) * 0xC4CEB9FE1A85EC53 % 2**64
        return h ^ (h >> 33)

    def walk(value):
        while True:
            high, low = divmod(value, 2**low_bits)
            for i, key in enumerate(keys):
                if i % 2 == 0:
                    low ^= mix(high, key) % 2**low_bits
                else:
                    high ^= mix(low, key) % 2**high_bits
            value = high * 2**low_bits + low
            if value < size:
                return value

    return [walk(i) for i in range(size)]


@given(st.integers(1, 3000), seeds, st.integers(0, 2**40))
def test_bijection(size, seed, epoch):
    """For any size, seed and epoch, every element is hit exactly once."""
    assert sorted(order_of(size, seed, epoch)) == list(range(size))


@given(st.integers(2**20, 2**45), seeds)
def test_large_sizes_stay_inside_and_distinct(size, seed):
    """Of sizes too large to list, neighbours still go to different places within."""
    hit = Permutation.keyed(size, seed, 0)(np.arange(1000, dtype=np.int64) + size - 1000)
    assert len(set(hit.tolist())) == 1000
    assert 0 <= hit.min() <= hit.max() < size


@given(st.integers(1, 300), seeds, st.integers(0, 9))
def test_agrees_with_plain_integers(size, seed, epoch):
    """The vectorised permutation is the one that its description gives, element by element."""
    assert order_of(size, seed, epoch) == plain_order(size, seed, epoch)


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_seed_and_epoch_change_the_order(seed, epoch, other):
    """Of 50 windows, another seed or another epoch gives another order."""
    if other != epoch:
        assert order_of(50, seed, epoch) != order_of(50, seed, other)
    if other != seed:
        assert order_of(50, seed, epoch) != order_of(50, other, epoch)


def test_places_are_even():
    """Over 2,000 epochs each of 10 windows takes each place 200 times, within five deviations of a fair draw."""
    orders = np.array([order_of(10, 0, epoch) for epoch in range(2000)])
    counts = np.stack([np.bincount(orders[:, place], minlength=10) for place in range(10)])
    assert abs(counts - 200).max() < 5 * (2000 * 0.1 * 0.9) ** 0.5


def test_neighbours_are_unrelated():
    """In a permutation of 100,000, what follows a window says nothing of it: correlation 0 within five deviations."""
    order = np.array(order_of(100_000))
    assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < 5 / 100_000**0.5


@given(seeds, st.integers(0, 200), st.integers(0, 100), st.integers(1, 60))
def test_samples_are_slices_of_one_stream(seed, first, count, size):
    """Asking for samples anywhere gives what the stream from its beginning has there, over any number of epochs."""
    whole = sample_windows(seed, 0, first + count, size)
    assert sample_windows(seed, first, count, size).tolist() == whole[first:].tolist()


@given(seeds, st.integers(1, 40), st.integers(1, 4))
def test_each_epoch_has_every_window_once(seed, size, num_epochs):
    """Each stretch of as many samples as windows is a permutation of them."""
    samples = sample_windows(seed, 0, size * num_epochs, size).reshape(num_epochs, size)
    assert all(sorted(epoch) == list(range(size)) for epoch in samples.tolist())


@given(seeds, st.integers(1, 50), st.integers(1, 12), st.integers(0, 100))
def test_batches_are_the_samples(seed, size, batch_size, n):
    """Batch n holds samples n·B to n·B + B - 1, also where an epoch ends within it or the file is smaller than it."""
    expected = sample_windows(seed, n * batch_size, batch_size, size)
    assert BatchOrder(size, batch_size, seed).windows(n).tolist() == expected.tolist()


@given(seeds, st.lists(st.integers(0, 500), min_size=1, max_size=20))
def test_batches_do_not_depend_on_what_was_asked_before(seed, numbers):
    """One object asked in any order gives what a fresh one gives."""
    order = BatchOrder(1000, 8, seed)
    for n in numbers:
        assert order.windows(n).tolist() == BatchOrder(1000, 8, seed).windows(n).tolist()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 6, 12])
def test_ranks_share_the_batch(world_size):
    """The ranks' rows, one after the other, are the batch, whatever their number: none twice, none left out."""
    whole = BatchOrder(100, 12, 5).windows(20).tolist()
    shares = [BatchOrder(100, 12, 5, rank=r, world_size=world_size).windows(20).tolist() for r in range(world_size)]
    assert list(itertools.chain(*shares)) == whole
