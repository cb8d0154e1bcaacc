import gc

import torch

from torchledger.tracer import Recorder
from torchledger.tracer.storages import Storages


def _timeline(run):
    with Recorder() as recorder:
        run()
    return recorder.trace().timeline


def test_views_share_their_storage():
    """A tensor and three views are one block, freed with the last of them."""

    def run():
        x = torch.zeros(4, 4)
        view = x.t()[1:].unsqueeze(0)[:, :2]
        del x
        torch.zeros(1)
        torch.zeros(2)
        del view

    whole, other, _ = _timeline(run).blocks
    assert (whole.num_bytes, whole.op) == (4 * 4 * 4, "aten.zeros.default")
    assert whole.freed > other.freed > other.allocated > whole.allocated


def test_a_storage_is_freed_when_its_last_tensor_dies():
    def run():
        x = torch.zeros(8)
        y = x + 1
        del x
        torch.zeros(2)
        del y

    first, second, third = _timeline(run).blocks
    assert first.freed < third.allocated < second.freed


def test_what_autograd_saves_lives_until_the_backward_pass():
    """Sigmoid saves its output: the block outlives the last name for it."""

    def run():
        x = torch.zeros(8, requires_grad=True)
        y = torch.sigmoid(x).sum()
        torch.zeros(1)
        y.backward()

    timeline = _timeline(run)
    saved = next(block for block in timeline.blocks if block.op == "aten.sigmoid.default")
    backward = next(block for block in timeline.blocks if block.op == "aten.sigmoid_backward.default")
    assert saved.part == "activations"
    assert saved.freed > backward.allocated
    assert backward.part == "gradients", "the leaf's gradient takes the tensor over"


def test_an_address_used_again_is_a_new_block():
    storages = Storages()
    for _ in range(3):
        storages.allocate(torch.zeros(1000), op="made")
        gc.collect()
    assert len(storages.entries) == 3
    assert all(entry.freed is not None for entry in storages.entries)


def test_frees_after_the_end_are_not_written():
    x = torch.zeros(4)
    storages = Storages()
    storages.allocate(x, op="made")
    storages.close()
    del x
    assert storages.entries[0].freed is None


def test_what_dies_between_two_operations_dies_in_order_of_allocation():
    """The order of addresses is chance; a timeline is not."""
    storages = Storages()
    tensors = [torch.zeros(1) for _ in range(3)]
    for tensor in tensors:
        storages.allocate(tensor, op="made")
    del tensor
    while tensors:
        tensors.pop()  # the last one first
    blocks = storages.timeline((), {}).blocks
    assert [block.freed for block in blocks] == [3, 4, 5]
