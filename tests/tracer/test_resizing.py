"""Storages that are emptied and filled again: memory that comes and goes without an operation."""

import pytest
import torch

from torchledger.tracer import Recorder


def test_an_emptied_storage_is_freed_and_taken_anew():
    """4,000 bytes are there, then none, then 4,000 again, for the same purpose."""
    with Recorder() as recorder:
        x = torch.empty(1000)
        storage = x.untyped_storage()
        storage.resize_(0)
        storage.resize_(4000)
        del x, storage
    curve = recorder.trace().timeline.curve()
    assert curve == [0, 4000, 0, 4000, 0]


def test_a_storage_that_dies_empty_is_freed_once():
    """What was given back by hand is not given back again."""
    with Recorder() as recorder:
        x = torch.empty(1000)
        x.untyped_storage().resize_(0)
        del x
    timeline = recorder.trace().timeline
    assert timeline.curve() == [0, 4000, 0]
    assert len(timeline.events()) == 2


def test_torch_resizes_as_before_afterwards():
    """The class has no `resize_` of its own, before and after, also after an error."""
    assert "resize_" not in vars(torch.UntypedStorage)
    with pytest.raises(KeyError), Recorder(), Recorder():
        raise KeyError
    assert "resize_" not in vars(torch.UntypedStorage)
    assert torch.empty(4).untyped_storage().resize_(8).nbytes() == 8
