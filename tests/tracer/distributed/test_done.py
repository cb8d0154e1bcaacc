"""A collective's handle where nothing is sent."""

import gc

import torch

from torchledger.tracer.distributed.done import Done, done, forget


def test_it_has_ended_with_what_was_written():
    """Waiting returns at once, result and future are the tensors."""
    tensor = torch.ones(2)
    work = Done([tensor])
    assert work.wait()
    assert work.is_completed()
    assert work.is_success()
    assert work.result() == work.get_future().wait() == [tensor]


def test_it_holds_no_tensor():
    """Memory that nobody else holds is gone, though torch may still have the handle."""
    tensor = torch.ones(2)
    handle = done([tensor])
    storages = Done([tensor])
    del tensor
    gc.collect()
    assert storages.result() == []
    assert handle is not None
    forget()
