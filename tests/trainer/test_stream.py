from dataclasses import replace

import pytest
import torch

from torchledger.trainer.batches import Batches
from torchledger.trainer.ranks import Ranks
from torchledger.trainer.setup import resolve
from torchledger.trainer.stream import document_words, training_batches, validation_batches

pytestmark = pytest.mark.usefixtures("one_thread")


def with_documents(setup):
    return replace(setup, recipe=replace(setup.recipe, document_mask=True))


def test_the_stream_is_that_of_the_seed(config):
    """A run's batches are those of its data, batch size, length and seed, from the step where it goes on."""
    setup = resolve(config)
    with training_batches(setup, 5) as run, Batches(setup.data.train, 4, 16, setup.recipe.seed) as plain:
        assert all(map(torch.equal, next(run), plain.batch(5)))


def test_documents_come_where_they_are_kept_apart(config):
    """With a document mask every batch, also of validation, has a third tensor; without it two."""
    setup = resolve(config)
    with training_batches(setup) as plain, training_batches(with_documents(setup)) as masked:
        assert (len(plain.batch(0)), len(masked.batch(0))) == (2, 3)
        assert all(map(torch.equal, plain.batch(7), masked.batch(7)))
    assert len(next(iter(validation_batches(with_documents(setup))))) == 3


def test_what_documents_leave_of_attention_is_told(config):
    """The share is the mean over an epoch of what each batch's document numbers say."""
    setup = resolve(config)
    assert document_words(setup) == []
    masked = with_documents(setup)
    with training_batches(replace(masked, recipe=replace(masked.recipe, batch_size=1))) as batches:
        pairs = sum(batches.squared_lengths(n) for n in range(setup.num_windows))
        numbers = [batches.batch(n)[2] for n in range(setup.num_windows)]
    assert pairs == sum(int((row[:, :, None] == row[:, None, :]).sum()) for row in numbers)
    (words,) = document_words(masked)
    assert f"{pairs / (setup.num_windows * 16**2):.2%} of all pairs" in words


def test_ranks_share_each_batch(config):
    """Of two data parallel ranks each has its half of every batch."""
    setup = resolve(config)
    with training_batches(setup) as whole:
        expected = whole.batch(3)[0]
    shares = []
    for rank in range(2):
        with training_batches(replace(setup, ranks=Ranks(rank, 2))) as batches:
            shares.append(batches.batch(3)[0])
    assert torch.equal(torch.cat(shares), expected)
