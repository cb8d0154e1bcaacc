import pytest
import torch
import torch.distributed as dist

from torchledger.trainer.agreement import any_rank


@pytest.fixture
def group():
    """A group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield dist.group.WORLD
    dist.destroy_process_group()


@pytest.mark.parametrize("told", [True, False])
def test_alone_what_is_said_holds(told, group):
    """Without a group, and in a group of one, the answer is one's own."""
    assert any_rank(told, torch.device("cpu"), None) is told
    assert any_rank(told, torch.device("cpu"), group) is told
