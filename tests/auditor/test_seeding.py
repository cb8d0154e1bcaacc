"""One seed for every global stream, and what was drawn from is seen."""

import random

import numpy as np
import torch

from torchledger.auditor.seeding import STREAMS, draw_from, seed_everything, stream_states
from torchledger.tracer.undisturbed import undisturbed


def drawn():
    return torch.rand(2).tolist(), np.random.random(), random.random()  # noqa: NPY002


def test_one_seed_repeats_all_three_streams_and_is_told():
    """torch, NumPy and Python draw the same numbers again, and the seeds are there to be written down."""
    with undisturbed():
        seeds = seed_everything(11)
        first = drawn()
        assert seed_everything(11) == seeds
        assert drawn() == first
    assert seeds.told() == {"torch": 11, "numpy": 11, "python": 11}


def test_another_seed_for_one_stream_changes_that_one_alone():
    """A stream that is named takes its own seed; the others draw as before."""
    with undisturbed():
        seed_everything(11)
        first = drawn()
        seed_everything(11, numpy=12)
        other = drawn()
    assert [a == b for a, b in zip(first, other, strict=True)] == [True, False, True]


def test_the_stream_that_was_drawn_from_is_the_one_that_moved():
    """Each stream's state changes when something draws from it, and only then."""
    with undisturbed():
        for stream in STREAMS:
            before = stream_states()
            draw_from(stream)
            after = stream_states()
            assert [name for name in STREAMS if before[name] != after[name]] == [stream]
