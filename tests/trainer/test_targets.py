import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from torchledger.trainer.targets import IGNORED, count_targets, target_shares


def test_ignored_targets_do_not_count():
    """Of six targets two are ignored: four count."""
    targets = torch.tensor([[1, IGNORED, 2], [0, IGNORED, 3]])
    assert count_targets(targets) == 4


def test_views_count_their_own():
    """A micro-batch is a view of the batch, with strides that are not its own."""
    targets = torch.full((4, 9), IGNORED)
    targets[:, 1::2] = 7
    assert count_targets(targets[1:3, 1:]) == 8  # two rows of four


def test_where_there_are_no_values_all_count():
    """A trace has no values, so it takes every target to count."""
    with FakeTensorMode():
        assert count_targets(torch.zeros(2, 3, dtype=torch.int64)) == 6
    assert count_targets(torch.zeros(2, 3, dtype=torch.int64, device="meta")) == 6


def test_shares_add_up_to_one_and_a_single_batch_is_never_looked_at():
    """Shares are by targets, 3 to 1; a single micro-batch is the whole step; of nothing every share is nothing."""
    parts = [torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 1, dtype=torch.int64)]
    assert target_shares(parts) == [0.75, 0.25]
    assert target_shares(parts[:1]) == [1.0]
    assert target_shares([torch.full((1, 2), IGNORED)] * 2) == [0.0, 0.0]
